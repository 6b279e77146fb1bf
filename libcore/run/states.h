// SPDX-License-Identifier: Apache-2.0
// Where a capture's states come from: a target that this rank holds whole, one that the ranks hold together, or files.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/group.h"
#include "engine/engine.h"
#include "gen/segments.h"
#include "gen/target.h"
#include "text/chat.h"

namespace sf::run {

// Of one row that is kept. `teacher` is undefined unless somebody sees the last state.
struct Computed {
  gen::States states;
  ops::Top1 teacher;
};

class StatesOf {
 public:
  virtual ~StatesOf() = default;
  virtual const arch::Decoder& decoder() const = 0;
  virtual Dtype compute() const = 0;
  // The states of rows, each a forward of its own, after `layers` blocks. Where ranks hold the target together
  // (shared()), every rank calls it, with rows of its own or none, and the same layers.
  virtual std::vector<Computed> of(std::span<const text::ChatRow* const> rows, std::span<const int64_t> layers) = 0;
  virtual bool shared() const { return false; }
  // The same of rows by another way than of() goes: uncut forwards, and of weights that come from where they lie.
  // This rank's alone.
  virtual std::vector<Computed> plainly(std::span<const text::ChatRow* const> rows,
                                        std::span<const int64_t> layers) = 0;
  // fp32 [rows, V]; undefined where no rank holds the head.
  virtual at::Tensor logits(const at::Tensor& final_norm) const = 0;
};

// `target` outlives the result. `seen`: null without a teacher.
std::unique_ptr<StatesOf> whole_target(gen::Target& target, gen::Seen seen);

// The states of a row as `given`, which a target that is here whole judges.
using Given = std::function<gen::States(const text::ChatRow& row)>;
std::unique_ptr<StatesOf> given_states(gen::Target& target, gen::Seen seen, Given given);

// Ranks that hold the target together: each its intervals, of which a segment is gathered for its turn
// (`options.schedule`). `read`: fp32 elements [lo, hi) of a parameter. Every rank makes it; `group` outlives it.
struct SharedTarget {
  using Read = std::function<void(const std::string& parameter, int64_t lo, int64_t hi, std::span<float> to)>;
  arch::Decoder decoder;
  Dtype compute = Dtype::kF32;
  gen::Seen seen;
  Read read;
};
// What it holds and held: for people, and beside a plan.
class SharedStates : public StatesOf {
 public:
  virtual engine::Engine& engine() = 0;
};
std::unique_ptr<SharedStates> shared_target(comm::Group& group, SharedTarget target, engine::EngineOptions options);

}  // namespace sf::run
