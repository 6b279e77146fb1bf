// SPDX-License-Identifier: Apache-2.0
// Any world size, same bits, with the real EAGLE3 segment and its kernels.
#include <gtest/gtest.h>

#include "eagle3_toy.h"
#include "toy.h"

namespace sf::engine {
namespace {

constexpr int64_t kWindow = 12;

std::vector<float> train(comm::Group& group, const EngineOptions& options, bool trained_only = false) {
  toy::Draft draft;
  Engine engine(group, arch::describe_training(draft.config),
                model::eagle3_segments(draft.config, draft.vocabulary, draft.options), options);
  arch::ModelSpec spec = arch::describe_training(draft.config);
  toy::load(engine, spec);
  std::vector<float> record;
  for (uint64_t window = 0; window < 2; ++window) {
    for (int64_t round = 0; round < plan::rounds(kWindow, group.world()); ++round) {
      int64_t k = round * group.world() + group.rank();
      std::optional<model::Tensors> mine;
      if (k < kWindow)
        mine = toy::eagle3_batch(draft, window * kWindow + static_cast<uint64_t>(k), options.schedule.compute);
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
