// SPDX-License-Identifier: Apache-2.0
// Any world size, same bits, with the real EAGLE3 segment and its kernels.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "model/eagle3.h"
#include "toy.h"

namespace sf::engine {
namespace {

constexpr int64_t kRows = 2, kTokens = 23, kWindow = 12;

struct Draft {
  arch::Eagle3 config;
  model::Eagle3Vocabulary vocabulary;
  model::Eagle3Options options;

  Draft() {
    config.vocab = 97, config.draft_vocab = 41, config.hidden = 32, config.target_hidden = 32, config.intermediate = 48;
    config.heads = 4, config.kv_heads = 2, config.head_dim = 8, config.max_positions = 64;
    vocabulary.t2d = at::zeros({config.vocab}, at::kBool);
    vocabulary.d2t = at::zeros({config.draft_vocab}, at::kLong);
    for (int64_t i = 0; i < config.draft_vocab; ++i) {  // even ids
      vocabulary.t2d.mutable_data_ptr<bool>()[2 * i] = true;
      vocabulary.d2t.mutable_data_ptr<int64_t>()[i] = i;
    }
  }
};

at::Tensor random(uint64_t number, std::string_view what, std::vector<int64_t> shape, double scale) {
  Rng rng(21, what);
  at::Tensor values = at::zeros(shape, at::kFloat);
  for (int64_t i = 0; i < values.numel(); ++i) {
    values.mutable_data_ptr<float>()[i] = rng.normal(number, static_cast<uint64_t>(i)) * static_cast<float>(scale);
  }
  return values;
}

at::Tensor words(uint64_t number, std::string_view what, int64_t bound, int64_t step) {
  Rng rng(22, what);
  at::Tensor values = at::zeros({kRows, kTokens}, at::kLong);
  for (int64_t i = 0; i < values.numel(); ++i) {
    values.mutable_data_ptr<int64_t>()[i] =
        static_cast<int64_t>(rng.below(static_cast<uint64_t>(bound), number, static_cast<uint64_t>(i))) * step;
  }
  return values;
}

model::Tensors batch(const Draft& draft, uint64_t number, Dtype compute) {
  int64_t h = draft.config.target_hidden;
  at::ScalarType type = tensor::to_scalar(compute);
  at::Tensor lengths = at::full({kRows}, kTokens, at::kLong);
  lengths.mutable_data_ptr<int64_t>()[1] = 9 + static_cast<int64_t>(number % 7);
  return {{"input_ids", words(number, "ids", draft.config.vocab, 1)},
          {"loss_mask", at::full({kRows, kTokens}, 1, at::kLong)},
          {"target_top1", words(number, "top1", draft.config.draft_vocab, 2)},
          {"hidden_state", random(number, "captured", {kRows, kTokens, 3 * h}, 1).to(type)},
          {"final_norm", random(number, "norm", {kRows, kTokens, h}, 1).to(type)},
          {"target_lse", at::full({kRows, kTokens}, 6.0, at::kFloat)},
          {"lengths", lengths},
          {"step_weights", at::full({draft.options.unroll}, 0.01, at::kFloat)}};
}

std::vector<float> train(comm::Group& group, const EngineOptions& options, bool trained_only = false) {
  Draft draft;
  Engine engine(group, arch::describe_training(draft.config),
                model::eagle3_segments(draft.config, draft.vocabulary, draft.options), options);
  arch::ModelSpec spec = arch::describe_training(draft.config);
  for (const arch::Parameter& parameter : spec.parameters) {
    engine.load(parameter.name, [&](int64_t lo, int64_t hi, std::span<float> to) {
      Rng rng(23, parameter.name);
      float base = parameter.shape.size() == 1 ? 1.0f : 0.0f;
      for (int64_t i = lo; i < hi; ++i)
        to[static_cast<size_t>(i - lo)] = base + 0.2f * rng.normal(static_cast<uint64_t>(i));
    });
  }
  std::vector<float> record;
  for (uint64_t window = 0; window < 2; ++window) {
    for (int64_t round = 0; round < plan::rounds(kWindow, group.world()); ++round) {
      int64_t k = round * group.world() + group.rank();
      std::optional<model::Tensors> mine;
      if (k < kWindow) mine = batch(draft, window * kWindow + static_cast<uint64_t>(k), options.schedule.compute);
      engine.round(mine, "loss", {"step_sums"});
    }
    record.push_back(static_cast<float>(engine.step(1e-2, 0.5, {}).grad_norm));
  }
  for (const arch::Parameter& parameter : spec.parameters)
    if (parameter.trainable || !trained_only) toy::append(record, engine.gathered(parameter.name));
  return record;
}

class Eagle3Bits : public ::testing::TestWithParam<Dtype> {};

TEST_P(Eagle3Bits, WorldsOf1To4AreEqual) {
  EngineOptions options{.schedule = {.compute = GetParam(), .replicated = {"embed_tokens.weight", arch::kTargetHead}}};
  std::vector<float> alone;
  for (int world : {1, 2, 3, 4}) {
    std::vector<float> record;
    comm::run_threads(world, [&](comm::Group& group) {
      auto mine = train(group, options);
      if (group.rank() == 0) record = mine;
    });
    if (world == 1) alone = record;
    EXPECT_GT(record[0], 0.0f);
    EXPECT_TRUE(toy::same_bits(record, alone)) << world;
  }
}

TEST_P(Eagle3Bits, AnEmbeddingInRowsOrOnTheHostOrSharedOutGivesThoseOfWholeTables) {
  auto record_of = [](int world, const EngineOptions& options) {
    std::vector<float> record;
    comm::run_threads(world, [&](comm::Group& group) {
      auto mine = train(group, options, true);
      if (group.rank() == 0) record = mine;
    });
    return record;
  };
  std::vector<float> alone = record_of(1, {.schedule = {.compute = GetParam()}});
  for (int world : {2, 3, 4}) {
    for (plan::Residency residency :
         {plan::Residency::kReplicate, plan::Residency::kShard, plan::Residency::kRows, plan::Residency::kHost}) {
      EngineOptions options{.schedule = {.compute = GetParam()}};
      bool on_host = residency == plan::Residency::kHost;  // where a head inside a group may live too
      options.schedule.tables = {{"embed_tokens.weight", residency},
                                 {arch::kTargetHead, on_host ? residency : plan::Residency::kReplicate}};
      EXPECT_TRUE(toy::same_bits(record_of(world, options), alone)) << world << " " << plan::name_of(residency);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Compute, Eagle3Bits, ::testing::Values(Dtype::kF32, Dtype::kBF16),
                         [](const auto& info) { return info.param == Dtype::kF32 ? "f32" : "bf16"; });

}  // namespace
}  // namespace sf::engine
