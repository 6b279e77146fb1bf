// SPDX-License-Identifier: Apache-2.0
// What sf-train grpo opens before anything is computed: --plan and the run alike.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "app/command.h"
#include "arch/decoder.h"
#include "ckpt/adapter.h"
#include "score/rule.h"
#include "stream/sample.h"
#include "text/chat.h"
#include "tool/exam.h"
#include "tool/grpo_settings.h"
#include "tool/plan_report.h"

namespace sf::tool {

// Questions as they are sent, with what is right.
struct Asked {
  Exam exam;
  std::vector<std::vector<int32_t>> ids;  // by prompt of the exam
  const score::Question& question(size_t prompt) const { return exam.book.questions()[prompt]; }
};

struct GrpoTask {
  ckpt::Checkpoint target;
  text::ChatEncoder encoder;
  arch::Decoder decoder;
  ckpt::AdapterFiles adapter;
  GrpoSettings settings;
  score::Rule rule;
  std::optional<std::string> reward;  // the command of --reward, whose scores count; the rule's verdicts are told
  Asked asked;
  std::optional<Asked> held;  // --held
  int64_t answer_tokens = 0;  // at most
  int64_t longest = 0;        // prompt and answer
  uint64_t order_seed = 0;
  stream::Contract contract;  // what a run that goes on must find again
};

// Reads --target, --adapter, --questions and --held under [grpo], [eval] and the rule's options. kConfig for sampling
// whose law is not that of the logits over the temperature, or which draws nothing; for a question that may not fit
// grpo.token_budget. kData for a held-out question that is trained on, or a gold that the rule refuses.
GrpoTask open_grpo(app::Invocation& invocation);

struct GrpoShapes {
  arch::Decoder decoder;
  std::vector<arch::Adapter> adapters;
  GrpoSettings settings;
  int64_t longest = 0;  // prompt and answer
};
// The plan of a rank: micro-batches as large as the budget lets them be, and the sampler with a cache for each sequence
// that it decodes at once. Applies [planned], which makes it the plan of a run that is not there yet.
PlanRequest grpo_request(config::Settings& settings, const GrpoShapes& task, int world);
PlanRequest grpo_request(config::Settings& settings, const GrpoTask& task, int world);
// Of a target's shapes alone: [lora] says the adapters, capture.max_length the longest prompt.
PlanRequest grpo_request(config::Settings& settings, const arch::Decoder& target, int world);

}  // namespace sf::tool
