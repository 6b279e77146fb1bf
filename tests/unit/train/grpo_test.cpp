// SPDX-License-Identifier: Apache-2.0
#include "train/grpo.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "arch/decoder.h"
#include "base/error.h"
#include "base/rng.h"
#include "comm/group.h"
#include "model/grpo.h"
#include "tensor/compare.h"
#include "tensor/threads.h"

namespace sf::train {
namespace {

constexpr int64_t kVocab = 40;

arch::Decoder small() {
  arch::Decoder d;
  d.family = "llama", d.architecture = "LlamaForCausalLM";
  d.vocab = kVocab, d.hidden = 16, d.intermediate = 24, d.layers = 2, d.heads = 2, d.kv_heads = 1, d.head_dim = 8;
  d.max_positions = 64, d.tied = true;
  d.windows = {0, 0};
  return d;
}

std::vector<arch::Adapter> adapters() {
  arch::Lora lora;
  lora.rank = 2, lora.alpha = 4;
  lora.targets.names = {"q_proj", "v_proj", "down_proj"};
  return arch::adapters_of(lora, arch::describe(small()));
}

// Three prompts of three responses; those that hold token 7 are right.
std::vector<Response> responses() {
  const Rng rng(5, "responses");
  std::vector<Response> all;
  for (uint64_t i = 0; i < 9; ++i) {
    Response r{.group = std::to_string(i / 3)};
    for (uint64_t t = 0; t < 3 + i / 3; ++t) r.prompt.push_back(static_cast<int32_t>(rng.below(kVocab, i / 3, t)));
    for (uint64_t t = 0; t < 1 + i % 4; ++t) {
      r.answer.push_back(static_cast<int32_t>(rng.below(kVocab, i, 10 + t)));
      r.rollout_log_probs.push_back(-3.5 - 0.2 * rng.uniform(i, t));
    }
    if (i % 3 == 0) r.answer[0] = 7, r.score = 1;
    all.push_back(r);
  }
  return all;
}

struct Trained {
  std::map<std::string, at::Tensor> weights;  // of what trains
  std::vector<GrpoResult> steps;
};

struct Wanted {
  int world = 1, steps = 2;
  std::vector<Response> given = responses();
  double rate = 0.01;
  std::map<std::string, at::Tensor> from = {};  // what trains; else drawn
  double kl = 0;                                // weight of the distance to what the adapters are on
};

void load(engine::Engine& engine, const arch::Parameter& parameter, const Wanted& wanted) {
  const Rng rng(11, parameter.name);
  auto from = wanted.from.find(parameter.name);
  engine.load(parameter.name, [&](int64_t lo, int64_t hi, std::span<float> to) {
    for (int64_t i = lo; i < hi; ++i)
      to[static_cast<size_t>(i - lo)] = from != wanted.from.end() ? from->second.const_data_ptr<float>()[i]
                                                                  : (parameter.init == "ones" ? 1.F : 0.F) +
                                                                        0.2F * rng.normal(static_cast<uint64_t>(i));
  });
}

Trained run(GrpoOptions options, const Wanted& wanted = {}) {
  tensor::set_threads(1);
  const std::vector<arch::Adapter> own = adapters();
  const arch::ModelSpec spec = arch::describe_training(small(), own);
  if (options.token_budget == 0) options.token_budget = 24;
  model::PolicyForm form{.clip = {.high = 0.28}};
  if (wanted.kl > 0) {
    options.kl_coefficient = wanted.kl;
    form.kl = rl::KlLoss{rl::kl_from_name("k2"), wanted.kl};
  }
  Trained result;
  comm::run_threads(wanted.world, [&](comm::Group& group) {
    engine::Engine engine(group, spec, model::grpo_segments(small(), own, form), {});
    for (const arch::Parameter& parameter : spec.parameters) load(engine, parameter, wanted);
    GrpoTrainer trainer(engine, options);
    for (int step = 0; step < wanted.steps; ++step) {
      const GrpoResult found = trainer.step(wanted.given, wanted.rate);
      if (group.rank() == 0) result.steps.push_back(found);
    }
    for (const arch::Parameter& parameter : spec.parameters) {
      if (!parameter.trainable) continue;
      at::Tensor whole = engine.gathered(parameter.name).clone();
      if (group.rank() == 0) result.weights[parameter.name] = whole;
    }
  });
  return result;
}

double value(const GrpoResult& result, const std::string& name) {
  for (const rl::Metric& metric : result.metrics)
    if (metric.name == name) return metric.value;
  return NAN;
}

double worst(const Trained& a, const Trained& b) {
  double most = 0;
  for (const auto& [name, tensor] : a.weights)
    most = std::max(most, tensor::max_abs_difference(tensor, b.weights.at(name)));
  return most;
}

TEST(GrpoTrainer, GivesTheSameBitsOnAnyNumberOfRanks) {
  const GrpoOptions options{.mini_batch = 6};
  const Trained alone = run(options);
  EXPECT_GT(value(alone.steps[0], "actor/grad_norm"), 0);
  for (int world : {2, 3, 5}) {
    const Trained many = run(options, {.world = world});
    EXPECT_EQ(worst(alone, many), 0) << world;
    for (const rl::Metric& metric : alone.steps[1].metrics)
      EXPECT_EQ(value(many.steps[1], metric.name), metric.value) << metric.name;
  }
}

// Micro-batches of one response, or all of them padded together: fp32 sums in another order. Weights are not compared:
// AdamW's first steps are as large as the rate wherever a gradient is near nothing.
TEST(GrpoTrainer, TrainsTheSameHoweverTheMicroBatchesAreCut) {
  const Trained fine = run({.token_budget = 10}, {.steps = 1}), coarse = run({.token_budget = 1000}, {.steps = 1});
  EXPECT_GT(value(fine.steps[0], "grpo/micro_batches"), value(coarse.steps[0], "grpo/micro_batches"));
  EXPECT_NEAR(value(fine.steps[0], "actor/pg_loss"), value(coarse.steps[0], "actor/pg_loss"), 1e-6);
  const double norm = value(coarse.steps[0], "actor/grad_norm");
  EXPECT_NEAR(value(fine.steps[0], "actor/grad_norm"), norm, 1e-5 * norm);
}

TEST(GrpoTrainer, OnItsOwnPolicyClipsNothing) {
  const GrpoResult first = run({}, {.steps = 1}).steps[0];
  EXPECT_EQ(value(first, "actor/pg_clipfrac"), 0);
  EXPECT_NEAR(value(first, "actor/ppo_kl"), 0, 1e-6);  // padded micro-batches against single sequences
}

// One mini-batch a step: the update's own log-probabilities are those of the policy that answered, so that the pass
// before it is not needed. Advantages alone weigh a token then; the two forms differ by how sequences are padded.
TEST(GrpoTrainer, TakesOldLogProbabilitiesFromTheUpdateItself) {
  const Trained own = run({.old = OldLogProbs::kUpdate}, {.steps = 1}), before = run({}, {.steps = 1});
  const GrpoResult &found = own.steps[0], &wanted = before.steps[0];
  const double norm = value(wanted, "actor/grad_norm");
  EXPECT_NEAR(value(found, "actor/grad_norm"), norm, 1e-5 * norm);
  EXPECT_EQ(value(found, "actor/ppo_kl"), 0);
  for (const char* name : {"rollout_corr/k3_kl", "training/rollout_probs_diff_mean", "rollout_corr/training_ppl"})
    EXPECT_NEAR(value(found, name), value(wanted, name), 1e-5 * std::abs(value(wanted, name))) << name;
  for (int world : {2, 3, 5})
    EXPECT_EQ(worst(own, run({.old = OldLogProbs::kUpdate}, {.world = world, .steps = 1})), 0) << world;
}

TEST(GrpoTrainer, MakesWhatWasRewardedLikelierAndAtARateOfNothingDoesNot) {
  std::vector<Response> right;
  for (const Response& r : responses())
    if (r.score > 0) right.push_back(r);
  auto surprise = [&](const Trained& from) {
    const Trained seen = run({}, {.steps = 1, .given = right, .rate = 0, .from = from.weights});
    return value(seen.steps[0], "rollout_corr/training_log_ppl");
  };
  const double still = surprise(run({}, {.steps = 8, .rate = 0}));
  EXPECT_EQ(still, surprise(Trained{}));
  EXPECT_LT(surprise(run({}, {.world = 2, .steps = 8})), still - 0.2);
}

TEST(GrpoTrainer, OfEqualScoresLearnsNothing) {
  Wanted wanted{.world = 2, .steps = 1};
  for (Response& r : wanted.given) r.score = 1;
  const GrpoResult step = run({}, wanted).steps[0];
  EXPECT_EQ(value(step, "actor/grad_norm"), 0);
  EXPECT_EQ(value(step, "grpo/zero_variance_groups"), 3);
}

// Of equal scores nothing but the distance to the model without its adapters is learned: it shrinks.
TEST(GrpoTrainer, WithADistanceInItsLossComesNearerToItsReference) {
  Wanted wanted{.steps = 12, .rate = 0.003, .kl = 1};
  for (Response& r : wanted.given) r.score = 1;
  const Trained alone = run({}, wanted);
  EXPECT_GT(value(alone.steps.front(), "actor/kl_loss"), 1e-3);
  EXPECT_LT(value(alone.steps.back(), "actor/kl_loss"), 0.5 * value(alone.steps.front(), "actor/kl_loss"));
  EXPECT_EQ(value(alone.steps.front(), "actor/kl_coef"), 1);
  wanted.world = 2;
  EXPECT_EQ(worst(alone, run({}, wanted)), 0);
}

TEST(GrpoTrainer, WithoutATokenLeftSkipsTheMiniBatch) {
  GrpoOptions options;
  options.rejection = rl::criteria("token_k2", "1e-12");  // nobody agrees so well
  const GrpoResult step = run(options, {.world = 2, .steps = 1}).steps[0];
  EXPECT_EQ(step.empty, 1);
  EXPECT_EQ(step.updates, 0);
}

TEST(GrpoTrainer, RefusesAResponseThatFitsNoMicroBatch) {
  EXPECT_THROW(run({.token_budget = 4}, {.steps = 1}), Error);
}

}  // namespace
}  // namespace sf::train
