// SPDX-License-Identifier: Apache-2.0
// What sf-train grpo keeps beside its checkpoints, as sf-eval reads it. One rank writes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "gen/generate.h"
#include "score/statistics.h"
#include "score/verdict.h"
#include "tool/grpo_task.h"
#include "train/grpo.h"

namespace sf::run {

// What a rule made of some answers, in their order.
struct Judged {
  std::vector<std::string> texts;
  std::vector<score::Verdict> verdicts;
  std::vector<Json> program;  // what --reward said of each, on the rank that asked; or empty
  score::Reading reading;
};

// An adapter as its sampler knows it.
struct HeldAdapter {
  int64_t version = 0;  // the step after which it is
  std::string digest;
};

class GrpoRecords {
 public:
  // Borrows the task. A run that begins anew (`step` 0) drops what an earlier one left in these folders.
  GrpoRecords(std::filesystem::path run_dir, const tool::GrpoTask& task, int64_t step);

  // RUN/rollouts/step-N.jsonl: each response with its tokens, log-probabilities, score and outcome. `rows`: the
  // question of each. N is the step that learns from them.
  void responses(const HeldAdapter& adapter, std::span<const size_t> rows, std::span<const train::Response> responses,
                 const Judged& judged) const;
  // RUN/held/answers/step-N.jsonl and the verdicts about them, RUN/held/step-N.jsonl, as of sf-eval generate and score.
  // Nothing takes the place of what is there: other verdicts of the same step lie beside it, step-N-again.jsonl, and
  // false is returned.
  bool held(const HeldAdapter& adapter, std::span<const gen::Completion> answers, const Judged& judged) const;
  bool has_held(int64_t step) const;

 private:
  std::string answer_lines(const Json& facts, std::span<const gen::Completion> answers, const Judged& judged) const;
  std::filesystem::path dir_;
  const tool::GrpoTask& task_;
};

}  // namespace sf::run
