// SPDX-License-Identifier: Apache-2.0
// The training of a draft, whatever its algorithm: samples -> windows -> steps -> checkpoints, on one rank or many.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/command.h"
#include "data/feed.h"
#include "engine/engine.h"
#include "tool/draft_files.h"
#include "train/objective.h"

namespace sf::run {

using tool::DraftFiles;

// What a run needs to know of an algorithm: its mathematics, its samples, what it keeps beside parameters.
class DraftAlgorithm {
 public:
  virtual ~DraftAlgorithm() = default;
  virtual arch::ModelSpec spec() const = 0;
  virtual std::vector<model::Segment> segments() const = 0;
  virtual std::unique_ptr<train::Objective> objective() const = 0;
  virtual data::Feed::Collate collate(int64_t max_length, Dtype compute) const = 0;
  // Buffers that every checkpoint holds, and frozen parameters that belong into it.
  virtual std::vector<NamedTensor> buffers() const { return {}; }
  virtual std::vector<std::string> also_frozen() const { return {}; }
  // LoopOptions::constant_bytes, and ::work_bytes of a run that follows `plan`, which outlives it; empty: not known.
  virtual uint64_t constant_bytes() const { return 0; }
  virtual std::function<uint64_t(const model::Tensors& micro_batch)> work_bytes(const plan::Schedule&) const {
    return {};
  }
  // A parameter that is neither in the draft's files nor a whole tensor of the target's.
  virtual std::optional<engine::Engine::ReadInterval> reader(const std::string&) const { return std::nullopt; }
  bool reference_quirks = false;
};

// A row of the table of algorithms. `make` reads the algorithm's settings (tool/draft_settings.h); what it is given
// outlives the result.
struct DraftVerb {
  std::string_view name;
  std::unique_ptr<DraftAlgorithm> (*make)(const DraftFiles& draft, config::Settings& settings);
};
template <typename Algorithm>
std::unique_ptr<DraftAlgorithm> make_draft(const DraftFiles& draft, config::Settings& settings) {
  return std::make_unique<Algorithm>(draft, settings);
}
// One line an algorithm, each in its own train_NAME.cpp.
const DraftVerb& eagle3_verb();
const DraftVerb& dflash_verb();
const DraftVerb& dflash2_verb();
const DraftVerb& dspark_verb();
const DraftVerb& domino_verb();
const DraftVerb& peagle_verb();

int train_draft(app::Invocation& invocation, const DraftVerb& verb);

}  // namespace sf::run
