// SPDX-License-Identifier: Apache-2.0
// Evaluations of a draft between two steps of its training: held-out prompts decoded with the checkpoint just
// published, prompt i on rank i mod W; counts summed, recorded, and RUN/best named by them.
#pragma once
#include <filesystem>
#include <functional>

#include "app/command.h"
#include "gen/speculative.h"
#include "run/training.h"
#include "tool/draft_files.h"
#include "tool/held_out.h"
#include "train/loop.h"
#include "train/served.h"

namespace sf::run {

// Borrows everything. Holds nothing of target or draft between two evaluations.
class Acceptance {
 public:
  // `stop`: whether the run is asked to end; an evaluation is then given up, without a record.
  Acceptance(app::Invocation& invocation, comm::Group& group, const tool::DraftFiles& draft, const tool::HeldOut& held,
             std::function<bool()> stop);

  // Every rank calls it. Decodes, unless this checkpoint's record is there already, as in a run that was killed behind
  // it. An error of one rank is every rank's.
  void evaluate(const std::filesystem::path& checkpoint, int64_t step, const train::Metrics& window,
                RunReport& report) const;

 private:
  gen::SpeculativeStats decode(const std::filesystem::path& checkpoint) const;
  std::optional<train::Served> count(const std::filesystem::path& checkpoint) const;
  app::Invocation& invocation_;
  comm::Group& group_;
  const tool::DraftFiles& draft_;
  const tool::HeldOut& held_;
  std::function<bool()> stop_;
};

}  // namespace sf::run
