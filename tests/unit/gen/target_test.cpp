// SPDX-License-Identifier: Apache-2.0
#include "gen/target.h"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "model/decoder.h"
#include "tensor/compare.h"
#include "tiny.h"

namespace sf::gen {
namespace {

using tensor::bit_equal;

// Every state that a sequence's rows can leave, the caches included.
struct Trace {
  std::vector<at::Tensor> states;
  at::Tensor keys, values;
};

Trace trace_of(const States& states, const Cache& cache) {
  Trace trace{states.captured, cache.keys(2).narrow(1, 0, cache.length()),
              cache.values(2).narrow(1, 0, cache.length())};
  trace.states.push_back(states.final_norm);
  return trace;
}

const std::vector<int64_t> kLayers{0, 2, 4};

class RowInvariance : public testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Types, RowInvariance, testing::Values(Dtype::kF32, Dtype::kBF16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST_P(RowInvariance, APrefillEqualsItsTokensOneByOne) {
  Target target = tiny::target(GetParam());
  const std::vector<int32_t> ids = tiny::ids(300, 1);  // two cuts, and more than one block of keys
  Cache whole = target.make_cache(320), single = target.make_cache(512);
  const Trace wanted = trace_of(target.prefill(whole, ids, kLayers), whole);
  for (size_t i = 0; i < ids.size(); ++i) {
    const Part part{&single, std::span(ids).subspan(i, 1)};
    States states = target.forward(std::span(&part, 1), kLayers);
    ASSERT_TRUE(bit_equal(states.final_norm, wanted.states.back().narrow(0, static_cast<int64_t>(i), 1))) << i;
    for (size_t layer = 0; layer < kLayers.size(); ++layer)
      ASSERT_TRUE(bit_equal(states.captured[layer], wanted.states[layer].narrow(0, static_cast<int64_t>(i), 1))) << i;
  }
  EXPECT_TRUE(bit_equal(single.keys(2).narrow(1, 0, 300), wanted.keys));
  EXPECT_TRUE(bit_equal(single.values(2).narrow(1, 0, 300), wanted.values));
}

TEST_P(RowInvariance, RowsDoNotSeeTheOtherSequencesOfTheirForward) {
  Target target = tiny::target(GetParam());
  std::vector<Cache> caches, own;
  std::vector<std::vector<int32_t>> prompts;
  for (int64_t i = 0; i < 9; ++i) {
    prompts.push_back(tiny::ids(3 + 7 * i, static_cast<uint64_t>(i)));
    caches.push_back(target.make_cache(128));
    own.push_back(target.make_cache(96));
  }
  std::vector<Part> parts;
  for (size_t i = 0; i < prompts.size(); ++i) parts.push_back({&caches[i], prompts[i]});
  const States together = target.forward(parts, kLayers);
  int64_t row = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto rows = static_cast<int64_t>(prompts[i].size());
    const Part part{&own[i], prompts[i]};
    const States alone = target.forward(std::span(&part, 1), kLayers);
    EXPECT_TRUE(bit_equal(alone.final_norm, together.final_norm.narrow(0, row, rows))) << i;
    EXPECT_TRUE(bit_equal(alone.captured[1], together.captured[1].narrow(0, row, rows))) << i;
    EXPECT_TRUE(bit_equal(target.logits(alone.final_norm), target.logits(together.final_norm).narrow(0, row, rows)))
        << i;
    row += rows;
  }
}

TEST_P(RowInvariance, ABlockThatIsRolledBackLeavesNoTrace) {
  Target target = tiny::target(GetParam());
  const std::vector<int32_t> ids = tiny::ids(40, 1), other = tiny::ids(6, 2);
  Cache cache = target.make_cache(64), clean = target.make_cache(64);
  target.prefill(cache, std::span(ids).first(30));
  const Part wrong{&cache, other}, part{&cache, std::span(ids).last(10)};
  target.forward(std::span(&wrong, 1));
  cache.truncate(30);
  EXPECT_TRUE(bit_equal(target.forward(std::span(&part, 1)).final_norm,
                        target.prefill(clean, ids).final_norm.narrow(0, 30, 10)));
}

TEST_P(RowInvariance, HoldsWhereDynamicRotaryOutgrowsItsLength) {
  arch::Decoder d = tiny::decoder();
  d.rope = {.type = "dynamic", .theta = 10000, .factor = 2};
  d.max_positions = 16;
  Target target = tiny::target(GetParam(), d);
  const std::vector<int32_t> ids = tiny::ids(24, 1);
  Cache whole = target.make_cache(32), single = target.make_cache(32);
  const at::Tensor wanted = target.prefill(whole, ids).final_norm;
  for (size_t i = 0; i < ids.size(); ++i) {
    const Part part{&single, std::span(ids).subspan(i, 1)};
    ASSERT_TRUE(bit_equal(target.forward(std::span(&part, 1)).final_norm, wanted.narrow(0, static_cast<int64_t>(i), 1)))
        << i;
  }
}

TEST_P(RowInvariance, HoldsWhereARouterChoosesExperts) {
  Target target = tiny::target(GetParam(), tiny::routed_decoder());
  const std::vector<int32_t> ids = tiny::ids(60, 1);
  Cache whole = target.make_cache(64), single = target.make_cache(64);
  const at::Tensor wanted = target.prefill(whole, ids).final_norm;
  for (size_t i = 0; i < ids.size(); ++i) {
    const Part part{&single, std::span(ids).subspan(i, 1)};
    ASSERT_TRUE(bit_equal(target.forward(std::span(&part, 1)).final_norm, wanted.narrow(0, static_cast<int64_t>(i), 1)))
        << i;
  }
}

TEST_P(RowInvariance, Top1IsTheArgmaxOfTheLogits) {
  Target target = tiny::target(GetParam());
  Cache cache = target.make_cache(64);
  const at::Tensor states = target.prefill(cache, tiny::ids(50, 1)).final_norm;
  const ops::Top1 top = target.top1(states);
  const at::Tensor logits = target.logits(states);
  EXPECT_TRUE(top.top1.to(at::kLong).equal(logits.argmax(1)));
  EXPECT_LT(tensor::max_abs_difference(top.lse, logits.logsumexp(at::IntArrayRef{1})), 1e-5);  // fp32 sums of 37 terms
}

class Families : public testing::TestWithParam<arch::Decoder> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Families, testing::Values(tiny::decoder(), tiny::routed_decoder()),
                         [](const auto& kind) { return kind.param.family; });

TEST_P(Families, FollowTheSegmentsOfTheModel) {
  const arch::Decoder& d = GetParam();
  const model::Tensors weights = tiny::weights(arch::describe(d));
  Target target(d, Weights(weights, Dtype::kF32));
  const std::vector<int32_t> ids = tiny::ids(20, 1);
  at::Tensor index = at::empty({1, 20}, at::kLong);
  std::copy(ids.begin(), ids.end(), index.data_ptr<int64_t>());
  model::Tensors boundaries{{"ids", index}, {"positions", at::arange(20, at::kLong).unsqueeze(0)}};
  for (const model::Segment& segment : model::decoder_segments(d)) {
    model::Tensors own;
    for (const std::string& name : segment.parameters) own[name] = weights.at(name);
    for (auto& [name, tensor] : segment.forward(own, boundaries)) boundaries[name] = tensor;
  }
  Cache cache = target.make_cache(32);
  const std::vector<int64_t> all{0, 1, 2, 3, 4};
  const States states = target.prefill(cache, ids, all);
  for (int64_t i : all) {
    const at::Tensor& wanted = boundaries.at("hidden." + std::to_string(i)).squeeze(0);
    const double scale = wanted.abs().max().item<double>();
    // Two fp32 forms of four blocks; sums in another order.
    EXPECT_LT(tensor::max_abs_difference(states.captured[static_cast<size_t>(i)], wanted), 1e-5 * scale) << i;
  }
  const at::Tensor logits = boundaries.at("logits").squeeze(0);
  EXPECT_LT(tensor::max_abs_difference(target.logits(states.final_norm), logits),
            1e-5 * logits.abs().max().item<double>());
}

// The adapters of every kind of layer but one of them, with B that is not zero.
std::vector<arch::Adapter> some_adapters(const arch::Decoder& d) {
  arch::Lora lora;
  lora.rank = 3, lora.alpha = 6;
  lora.targets.names = {"q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"};
  return arch::adapters_of(lora, arch::describe(d));
}

LiveAdapter factors(const std::vector<arch::Adapter>& adapters) {
  LiveAdapter live;
  for (const arch::Adapter& adapter : adapters)
    live[adapter.parameter] = {tiny::random(adapter.a, adapter.a_shape(), 0.2f, 0),
                               tiny::random(adapter.b, adapter.b_shape(), 0.2f, 0), adapter.scale};
  return live;
}

at::Tensor states_of(Target& target, const std::vector<int32_t>& ids) {
  Cache cache = target.make_cache(64);
  return target.prefill(cache, ids).final_norm;
}

TEST(Target, WithAnAdapterFollowsTheSegmentsThatHaveIt) {
  const arch::Decoder d = tiny::decoder();
  const std::vector<arch::Adapter> adapters = some_adapters(d);
  const LiveAdapter live = factors(adapters);
  model::Tensors weights = tiny::weights(arch::describe(d));
  Target target(d, Weights(weights, Dtype::kF32));
  const std::vector<int32_t> ids = tiny::ids(20, 1);
  const at::Tensor plain = states_of(target, ids);
  target.adapt(live);
  const at::Tensor adapted = states_of(target, ids);
  for (const arch::Adapter& adapter : adapters) {
    weights[adapter.a] = live.at(adapter.parameter).a;
    weights[adapter.b] = live.at(adapter.parameter).b;
  }
  at::Tensor index = at::empty({1, 20}, at::kLong);
  std::copy(ids.begin(), ids.end(), index.data_ptr<int64_t>());
  model::Tensors boundaries{{"ids", index}, {"positions", at::arange(20, at::kLong).unsqueeze(0)}};
  for (const model::Segment& segment : model::decoder_segments(d, adapters))
    for (auto& [name, tensor] : segment.forward(weights, boundaries)) boundaries[name] = tensor;
  const at::Tensor wanted = boundaries.at("final_norm").squeeze(0);
  // Two fp32 forms of four blocks; sums in another order.
  EXPECT_LT(tensor::max_abs_difference(adapted, wanted), 2e-5 * wanted.abs().max().item<double>());
  EXPECT_GT(tensor::max_abs_difference(adapted, plain), 1e-2);
  target.adapt({});
  EXPECT_EQ(tensor::max_abs_difference(states_of(target, ids), plain), 0);
}

TEST(Target, RefusesAnAdapterOfWhatItCannotAdapt) {
  const arch::Decoder d = tiny::decoder();
  Target target = tiny::target();
  LiveAdapter live = factors(some_adapters(d));
  live["model.layers.9.self_attn.q_proj.weight"] = live.begin()->second;
  EXPECT_THROW(target.adapt(live), Error);
  live.erase("model.layers.9.self_attn.q_proj.weight");
  live.begin()->second.a = tiny::random("other", {3, 5}, 1, 0);
  EXPECT_THROW(target.adapt(live), Error);
}

TEST(Target, ScoresThatAreNotFiniteHaveNoBestToken) {
  for (const char* broken : {"model.norm.weight", "model.embed_tokens.weight"}) {
    const arch::Decoder d = tiny::decoder();
    model::Tensors weights = tiny::weights(arch::describe(d));
    weights.at(broken).fill_(std::numeric_limits<float>::quiet_NaN());
    Target target(d, Weights(weights, Dtype::kF32));
    Cache cache = target.make_cache(8);
    const at::Tensor states = target.prefill(cache, tiny::ids(3, 1)).final_norm;
    try {
      target.top1(states);
      ADD_FAILURE() << broken;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::kData) << broken;
    }
  }
}

TEST(Target, CountsItsForwards) {
  Target target = tiny::target();
  Cache cache = target.make_cache(600);
  target.prefill(cache, tiny::ids(513, 1));
  EXPECT_EQ(target.forwards(), 3);  // cut at 256 and 512
  target.prefill(cache, tiny::ids(10, 2));
  EXPECT_EQ(target.forwards(), 4);
}

TEST(Target, RefusesWhatIsOutsideItsVocabularyOrLayers) {
  Target target = tiny::target();
  Cache cache = target.make_cache(8);
  const std::vector<int32_t> bad{1, 37};
  EXPECT_THROW(target.prefill(cache, bad), Error);
  EXPECT_THROW(target.prefill(cache, tiny::ids(2, 1), std::vector<int64_t>{5}), Error);
  EXPECT_EQ(cache.length(), 0);
}

TEST(Weights, NameTheTensorThatIsMissingOrMisshapen) {
  const arch::Decoder d = tiny::decoder();
  model::Tensors all = tiny::weights(arch::describe(d));
  all["model.layers.2.mlp.down_proj.weight"] = all["model.layers.2.mlp.up_proj.weight"];
  try {
    Target(d, Weights(all, Dtype::kF32));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kData);
    EXPECT_NE(error.message().find("model.layers.2.mlp.down_proj.weight"), std::string::npos);
  }
}

}  // namespace
}  // namespace sf::gen
