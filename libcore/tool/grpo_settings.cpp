// SPDX-License-Identifier: Apache-2.0
#include "tool/grpo_settings.h"

#include <fmt/core.h>

#include "base/error.h"
#include "config/apply.h"
#include "config/origins.h"

namespace sf::tool {
namespace {

using config::Apply;

void apply_batches(config::Settings& settings, GrpoSettings& grpo) {
  Apply step(settings, "every step", "run"), micro_batches(settings, "every micro-batch", "rl");
  grpo.prompts = step.whole("grpo.prompts");
  grpo.responses = step.whole("grpo.responses");
  grpo.mini_batch = step.whole("grpo.mini_batch");
  grpo.token_budget = micro_batches.whole("grpo.token_budget");
  SF_CHECK(grpo.mini_batch == 0 || grpo.prompts % grpo.mini_batch == 0, Exit::kConfig,
           "grpo.prompts = {} ({}) is no multiple of grpo.mini_batch = {}", grpo.prompts,
           settings.origin("grpo.prompts"), grpo.mini_batch);
  grpo.dynamic_sampling = step.whole("grpo.dynamic_sampling");
  grpo.keep_rollouts = step.flag("grpo.keep_rollouts");
}

void apply_loss(config::Settings& settings, GrpoSettings& grpo) {
  Apply token(settings, "every token", "rl");
  grpo.advantage.estimator = rl::estimator_from_name(Apply(settings, "every response", "rl").word("grpo.advantage"));
  grpo.loss = rl::policy_loss_from_name(token.word("grpo.loss"));
  grpo.aggregation = rl::aggregation_from_name(token.word("grpo.aggregation"));
  if (grpo.aggregation == rl::Aggregation::kSeqMeanTokenSumNorm)
    grpo.factor = token.number("grpo.factor");
  else
    Apply(settings, "0 tokens (grpo.aggregation is not seq-mean-token-sum-norm)", "rl").nothing("grpo.factor");
  if (grpo.loss == rl::PolicyLoss::kGpg) {
    Apply without(settings, "0 ratios (grpo.loss = gpg has none)", "rl");
    for (const char* key : {"grpo.clip_low", "grpo.clip_high", "grpo.clip_dual"}) without.nothing(key);
    return;
  }
  grpo.clip.low = token.number("grpo.clip_low");
  grpo.clip.high = token.number("grpo.clip_high");
  if (grpo.loss == rl::PolicyLoss::kPpo)
    grpo.clip.dual = token.number("grpo.clip_dual");
  else
    Apply(settings, "0 tokens (grpo.loss is not ppo)", "rl").nothing("grpo.clip_dual");
  rl::check(grpo.clip);
}

void apply_kl(config::Settings& settings, GrpoSettings& grpo) {
  const rl::Kl kl = config::judged("grpo.kl", [&] { return rl::kl_from_name(settings.get_string("grpo.kl")); });
  const double coefficient = Apply(settings, "every token", "rl").number("grpo.kl_coef");
  if (coefficient == 0) {
    Apply(settings, "0 tokens (grpo.kl_coef = 0: there is no reference)", "rl").nothing("grpo.kl");
    return;
  }
  Apply(settings, "every token", "rl").word("grpo.kl");
  grpo.kl = {kl, coefficient};
}

void apply_correction(config::Settings& settings, GrpoSettings& grpo) {
  Apply token(settings, "every token", "rl"), without(settings, "0 tokens (nothing asks for it)", "rl");
  grpo.old_log_probs = token.word("grpo.old_log_probs");
  const std::string bounds = token.word("grpo.correction");
  if (bounds.empty()) {
    without.nothing("grpo.correction_level");
  } else {
    SF_CHECK(grpo.old_log_probs == "recompute", Exit::kConfig,
             "grpo.correction ({}) weighs the trainer's log-probabilities against the sampler's before the update: it "
             "needs grpo.old_log_probs = \"recompute\", not \"{}\"",
             settings.origin("grpo.correction"), grpo.old_log_probs);
    grpo.correction.emplace();
    grpo.correction->bounds = config::judged("grpo.correction", [&] { return rl::correction_bounds(bounds); });
    if (token.word("grpo.correction_level") == "sequence") grpo.correction->level = rl::CorrectionLevel::kSequence;
  }
  const std::string rejection = token.word("grpo.rejection");
  if (rejection.empty()) {
    without.nothing("grpo.rejection_bounds");
  } else {
    const std::string bound = token.word("grpo.rejection_bounds");
    config::judged("grpo.rejection", [&] { return rl::criteria(rejection, "1"); });  // which fits all
    grpo.rejection = config::judged("grpo.rejection_bounds", [&] { return rl::criteria(rejection, bound); });
  }
  if (grpo.old_log_probs != "update") return;
  SF_CHECK(rejection.empty(), Exit::kConfig,
           "grpo.rejection ({}) compares log-probabilities before the update: not with grpo.old_log_probs = \"update\"",
           settings.origin("grpo.rejection"));
  SF_CHECK(grpo.mini_batch == 0 || grpo.mini_batch == grpo.prompts, Exit::kConfig,
           "grpo.mini_batch = {} ({}) makes several updates of a step, of which only the first is of the policy that "
           "answered: not with grpo.old_log_probs = \"update\"",
           grpo.mini_batch, settings.origin("grpo.mini_batch"));
  grpo.mini_batch = 0;
}

}  // namespace

GrpoSettings apply_grpo(config::Settings& settings) {
  GrpoSettings grpo;
  apply_batches(settings, grpo);
  apply_loss(settings, grpo);
  apply_kl(settings, grpo);
  apply_correction(settings, grpo);
  return grpo;
}

void apply_scores(config::Settings& settings, GrpoSettings& grpo, bool by_program) {
  Apply response(settings, "every response", "run");
  if (by_program) {
    grpo.reward_deadline_s = response.number("grpo.reward_deadline_s");
    grpo.reward_restarts = response.whole("grpo.reward_restarts");
    Apply told(settings, "0 responses (the program of --reward scores them)", "run");
    for (const char* key : {"grpo.right", "grpo.wrong"}) told.nothing(key);
  } else {
    grpo.right = response.number("grpo.right");
    grpo.wrong = response.number("grpo.wrong");
    SF_CHECK(grpo.right > grpo.wrong, Exit::kConfig,
             "grpo.right = {} ({}) must be above grpo.wrong = {}: else nothing is worth learning", grpo.right,
             settings.origin("grpo.right"), grpo.wrong);
    Apply without(settings, "0 responses (there is no --reward)", "run");
    for (const char* key : {"grpo.reward_deadline_s", "grpo.reward_restarts"}) without.nothing(key);
  }
  grpo.overlong_buffer = response.whole("grpo.overlong_buffer");
  if (grpo.overlong_buffer > 0)
    grpo.overlong_factor = response.number("grpo.overlong_factor");
  else
    Apply(settings, "0 responses (grpo.overlong_buffer = 0)", "run").nothing("grpo.overlong_factor");
}

}  // namespace sf::tool
