// SPDX-License-Identifier: Apache-2.0
// Targets with delta nets: their states beside the cache of keys.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "gen/tree.h"
#include "model/decoder.h"
#include "tensor/compare.h"
#include "tiny.h"

namespace sf::gen {
namespace {

using tensor::bit_equal;

// Delta, attention, delta, attention; the first family's projections lie by key head, the second's routes.
arch::Decoder hybrid(bool grouped) {
  arch::Decoder d = tiny::decoder();
  d.family = grouped ? "qwen3_next" : "qwen3_5_moe_text";
  d.qkv_bias = false, d.windows.assign(4, 0);
  d.gated_attention = d.centred_norms = true;
  d.rope.partial = 0.5;
  d.delta = {.key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 12, .taps = 4, .grouped = grouped};
  d.delta.layers = {true, false, true, false};
  if (grouped) return d;
  d.experts = {.count = 5, .chosen = 2, .width = 24, .shared_width = 16, .normalise = true};
  d.experts.layers.assign(4, true);
  return d;
}

const std::vector<int64_t> kLayers{0, 1, 2, 4};

class HybridTarget : public testing::TestWithParam<std::tuple<Dtype, bool>> {
 protected:
  Target target() const { return tiny::target(std::get<0>(GetParam()), hybrid(std::get<1>(GetParam()))); }
};
INSTANTIATE_TEST_SUITE_P(Types, HybridTarget,
                         testing::Combine(testing::Values(Dtype::kF32, Dtype::kBF16), testing::Bool()));

at::Tensor forward(Target& target, Cache& cache, std::span<const int32_t> ids) {
  const Part part{&cache, ids};
  return target.forward(std::span(&part, 1)).final_norm;
}

TEST_P(HybridTarget, APrefillEqualsItsTokensOneByOne) {
  Target target = this->target();
  const std::vector<int32_t> ids = tiny::ids(270, 1);
  Cache whole = target.make_cache(320), single = target.make_cache(320);
  const States wanted = target.prefill(whole, ids, kLayers);
  for (size_t i = 0; i < ids.size(); ++i) {
    const Part part{&single, std::span(ids).subspan(i, 1)};
    const States states = target.forward(std::span(&part, 1), kLayers);
    const auto row = static_cast<int64_t>(i);
    ASSERT_TRUE(bit_equal(states.final_norm, wanted.final_norm.narrow(0, row, 1))) << i;
    for (size_t layer = 0; layer < kLayers.size(); ++layer)
      ASSERT_TRUE(bit_equal(states.captured[layer], wanted.captured[layer].narrow(0, row, 1))) << i;
  }
}

TEST_P(HybridTarget, WhateverIsAcceptedOfABlockTheBitsAreThoseOfPlainDecoding) {
  Target target = this->target();
  const std::vector<int32_t> ids = tiny::ids(40, 1), other = tiny::ids(6, 2);
  Cache clean = target.make_cache(64);
  const at::Tensor wanted = target.prefill(clean, ids).final_norm;
  constexpr int64_t kBlock = 6;
  auto expect = [&](const at::Tensor& found, int64_t from, int64_t count) {
    EXPECT_TRUE(bit_equal(found.narrow(0, 0, count), wanted.narrow(0, from, count))) << count << " from " << from;
  };
  for (int64_t accepted = 0; accepted <= kBlock; ++accepted) {
    Cache cache = target.make_cache(64);
    target.prefill(cache, std::span(ids).first(20));
    for (int64_t at = 20; at + kBlock <= 40; at += kBlock) {
      std::vector<int32_t> block(ids.begin() + at, ids.begin() + at + kBlock);
      std::copy(other.begin() + accepted, other.end(), block.begin() + accepted);
      expect(forward(target, cache, block), at, accepted);
      cache.truncate(at + accepted);
      if (accepted == kBlock) continue;
      const std::vector<int32_t> rest(ids.begin() + at + accepted, ids.begin() + at + kBlock);
      expect(forward(target, cache, rest), at + accepted, std::ssize(rest));
    }
  }
}

TEST_P(HybridTarget, AKeptPathOfATreeLeavesTheBitsOfPlainDecoding) {
  Target target = this->target();
  const std::vector<int32_t> ids = tiny::ids(30, 1);
  Cache clean = target.make_cache(64), cache = target.make_cache(64);
  const at::Tensor wanted = target.prefill(clean, ids).final_norm;
  target.prefill(cache, std::span(ids).first(20));
  // 0 - 2 - 3 is what follows; 1 and 4 are other ways.
  const std::vector<int32_t> nodes{ids[20], 5, ids[21], ids[22], 9}, parents{kTrunk, kTrunk, 0, 2, 2};
  const Part part{&cache, nodes, parents};
  const at::Tensor found = target.forward(std::span(&part, 1)).final_norm;
  for (auto [node, position] : {std::pair(0, 20), {2, 21}, {3, 22}})
    EXPECT_TRUE(bit_equal(found.narrow(0, node, 1), wanted.narrow(0, position, 1))) << node;
  cache.keep(std::vector<int32_t>{0, 2, 3});
  EXPECT_TRUE(bit_equal(forward(target, cache, std::span(ids).last(7)), wanted.narrow(0, 23, 7)));
}

TEST_P(HybridTarget, SequencesOfAForwardDoNotSeeEachOtherAndACacheBeginsAnew) {
  Target target = this->target();
  const std::vector<int32_t> a = tiny::ids(9, 1), b = tiny::ids(70, 2);
  Cache first = target.make_cache(128), second = target.make_cache(128), alone = target.make_cache(128);
  const Part parts[] = {{&first, a}, {&second, b}};
  const at::Tensor both = target.forward(parts).final_norm;
  EXPECT_TRUE(bit_equal(both.narrow(0, 9, 70), forward(target, alone, b)));
  alone.truncate(0);
  EXPECT_TRUE(bit_equal(both.narrow(0, 0, 9), forward(target, alone, a)));
}

TEST(Hybrid, DecodingIsWhatTrainingsSegmentsMakeWithinRounding) {
  for (bool grouped : {false, true}) {
    const arch::Decoder d = hybrid(grouped);
    const model::Tensors weights = tiny::weights(arch::describe(d));
    Target target(d, Weights(weights, Dtype::kF32));
    const std::vector<int32_t> ids = tiny::ids(100, 3);
    Cache cache = target.make_cache(128);
    const States found = target.prefill(cache, ids, kLayers);
    at::Tensor rows = at::empty({1, 100}, at::kLong);
    for (int64_t i = 0; i < 100; ++i) rows.data_ptr<int64_t>()[i] = ids[static_cast<size_t>(i)];
    model::Tensors made{{"ids", rows}, {"positions", at::arange(100, at::kLong).unsqueeze(0)}};
    for (const model::Segment& segment : model::decoder_segments(d))
      for (auto& [name, value] : segment.forward(weights, made)) made[name] = value;
    // Sums in another order, over a hundred tokens of a recurrence.
    EXPECT_LT(tensor::max_abs_difference(found.final_norm, made.at("final_norm")[0]), 1e-4) << d.family;
    for (size_t i = 0; i < kLayers.size(); ++i)
      EXPECT_LT(tensor::max_abs_difference(found.captured[i], made.at("hidden." + std::to_string(kLayers[i]))[0]),
                1e-4);
  }
}

TEST(Hybrid, AStateThatIsGoneIsNotGuessed) {
  Target target = tiny::target(Dtype::kF32, hybrid(true));
  Cache cache = target.make_cache(128);
  target.prefill(cache, tiny::ids(90, 1));  // too many to be kept back
  cache.truncate(80);
  EXPECT_THROW(forward(target, cache, tiny::ids(3, 2)), Error);
}

}  // namespace
}  // namespace sf::gen
