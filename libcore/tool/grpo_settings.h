// SPDX-License-Identifier: Apache-2.0
// [grpo]: read, judged and echoed here for --plan and for the run.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/settings.h"
#include "rl/advantage.h"
#include "rl/aggregate.h"
#include "rl/kl.h"
#include "rl/policy_loss.h"
#include "rl/rejection.h"

namespace sf::tool {

struct GrpoSettings {
  int64_t prompts = 0, responses = 0;  // of a step; to each prompt
  int64_t mini_batch = 0;              // prompts of one optimizer step; 0: all
  int64_t token_budget = 0;
  rl::AdvantageOptions advantage;
  rl::Aggregation aggregation = rl::Aggregation::kTokenMean;
  double factor = 0;  // 0: the most tokens of an answer
  rl::PolicyLoss loss = rl::PolicyLoss::kPpo;
  rl::Clip clip;
  std::optional<rl::KlLoss> kl;
  std::string old_log_probs = "recompute";
  std::optional<rl::CorrectionOptions> correction;
  std::vector<rl::Criterion> rejection;
  double right = 1, wrong = 0;  // score of an answer
  double reward_deadline_s = 0;
  int64_t reward_restarts = 0;
  int64_t overlong_buffer = 0;
  double overlong_factor = 1;
  int64_t dynamic_sampling = 0;  // rollouts of a step at most; 0: one, of which all is learned from
  int64_t eval_every = 0;
  bool keep_rollouts = false;
};
// kConfig for values that exclude each other.
GrpoSettings apply_grpo(config::Settings& settings);  // all but the scores and eval_every
// What a response is worth, by a rule or by a program.
void apply_scores(config::Settings& settings, GrpoSettings& grpo, bool by_program);

}  // namespace sf::tool
