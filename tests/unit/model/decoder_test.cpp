// SPDX-License-Identifier: Apache-2.0
#include "model/decoder.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/rng.h"

namespace sf::model {
namespace {

arch::Decoder small() {
  arch::Decoder d;
  d.family = "qwen3", d.architecture = "Qwen3ForCausalLM";
  d.vocab = 41, d.hidden = 32, d.intermediate = 40, d.layers = 3, d.heads = 4, d.kv_heads = 2, d.head_dim = 16;
  d.max_positions = 128;
  d.qk_norm = d.qkv_bias = true;
  d.windows = {0, 5, 0};
  return d;
}

at::Tensor random(const std::string& name, const Shape& shape, float scale, float mean) {
  at::Tensor out = at::empty(shape, at::kFloat);
  Rng rng(7, name);
  for (int64_t i = 0; i < out.numel(); ++i)
    out.data_ptr<float>()[i] = mean + scale * rng.normal(static_cast<uint64_t>(i));
  return out;
}

Tensors weights_of(const arch::Decoder& decoder) {
  Tensors weights;
  for (const arch::Parameter& p : arch::describe(decoder).parameters)
    weights[p.name] = random(p.name, p.shape, 0.1f, p.init == "ones" ? 1.f : 0.f);
  return weights;
}

at::Tensor ids_of(int64_t rows, int64_t length, uint64_t seed) {
  at::Tensor ids = at::empty({rows, length}, at::kLong);
  for (int64_t i = 0; i < ids.numel(); ++i)
    ids.data_ptr<int64_t>()[i] = static_cast<int64_t>(Rng(seed, "ids").below(41, static_cast<uint64_t>(i)));
  return ids;
}

Tensors run(const arch::Decoder& decoder, const Tensors& weights, const at::Tensor& ids, const at::Tensor& positions,
            const at::Tensor& mask = {}, std::span<const arch::Adapter> adapters = {}, const at::Tensor& off = {}) {
  Tensors boundaries{{"ids", ids}, {"positions", positions}};
  if (mask.defined()) boundaries["attention_mask"] = mask;
  for (const Segment& segment : decoder_segments(decoder, adapters)) {
    Tensors own, read;
    for (const std::string& name : segment.parameters) {
      auto found = weights.find(name);
      own[name] = found == weights.end() ? weights.at("model.embed_tokens.weight") : found->second;
    }
    for (const std::string& name : segment.reads) read[name] = boundaries.at(name);
    if (mask.defined()) read["attention_mask"] = mask;
    if (off.defined()) read["adapters_off"] = off;
    Tensors written = segment.forward(own, read);
    EXPECT_EQ(written.size(), segment.writes.size()) << segment.name;
    for (const std::string& name : segment.writes) boundaries[name] = written.at(name);
  }
  return boundaries;
}

at::Tensor counting(int64_t rows, int64_t length) {
  return at::arange(length, at::kLong).expand({rows, length});
}

double worst(const at::Tensor& a, const at::Tensor& b) {
  return a.detach().to(at::kDouble).sub(b.detach().to(at::kDouble)).abs().max().item<double>();
}

TEST(Decoder, ReadsWhatItIsDescribedToReadAndWritesWhatItIsDescribedToWrite) {
  for (bool tied : {false, true}) {
    arch::Decoder d = small();
    d.tied = tied;
    Tensors out = run(d, weights_of(d), ids_of(2, 9, 1), counting(2, 9));
    EXPECT_EQ(out.at("hidden.3").sizes(), at::IntArrayRef({2, 9, 32}));
    EXPECT_EQ(out.at("logits").sizes(), at::IntArrayRef({2, 9, 41}));
  }
}

TEST(Decoder, PaddingOnEitherSideLeavesARowsTokensAsTheyAre) {
  arch::Decoder d = small();
  Tensors weights = weights_of(d);
  at::Tensor ids = ids_of(1, 9, 2);
  at::Tensor plain = run(d, weights, ids, counting(1, 9)).at("logits");
  for (int64_t before : {0, 4}) {
    at::Tensor padded = at::full({1, 13}, 3, at::kLong), mask = at::full({1, 13}, 0, at::kLong);
    at::Tensor positions = at::full({1, 13}, 0, at::kLong);
    padded.narrow(1, before, 9).copy_(ids);
    mask.narrow(1, before, 9).fill_(1);
    positions.narrow(1, before, 9).copy_(counting(1, 9));
    at::Tensor found = run(d, weights, padded, positions, mask).at("logits").narrow(1, before, 9);
    EXPECT_LT(worst(found, plain), 1e-5) << before;  // fp32, another attention shape
  }
}

TEST(Decoder, AMaskWithAGapIsRefused) {
  arch::Decoder d = small();
  at::Tensor mask = at::full({1, 4}, 1, at::kLong);
  mask.select(1, 2).fill_(0);
  try {
    run(d, weights_of(d), ids_of(1, 4, 3), counting(1, 4), mask);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kData);
  }
}

TEST(Decoder, AWindowHidesOlderTokens) {
  arch::Decoder d = small();
  d.layers = 1, d.windows = {4};
  Tensors weights = weights_of(d);
  at::Tensor ids = ids_of(1, 12, 4), other = ids.clone();
  other.select(1, 2).fill_((ids.select(1, 2).item<int64_t>() + 1) % 41);
  at::Tensor a = run(d, weights, ids, counting(1, 12)).at("logits"),
             b = run(d, weights, other, counting(1, 12)).at("logits");
  EXPECT_GT(worst(a.select(1, 5), b.select(1, 5)), 1e-4);  // 5 - 2 < 4: seen
  EXPECT_EQ(worst(a.select(1, 6), b.select(1, 6)), 0);     // 6 - 2 = 4: not seen
}

TEST(Decoder, Bf16FollowsFp32) {
  arch::Decoder d = small();
  Tensors weights = weights_of(d), rounded;
  for (const auto& [name, tensor] : weights) rounded[name] = tensor.to(at::kBFloat16);
  at::Tensor ids = ids_of(2, 9, 5);
  at::Tensor wide = run(d, weights, ids, counting(2, 9)).at("logits");
  at::Tensor narrow = run(d, rounded, ids, counting(2, 9)).at("logits");
  EXPECT_EQ(narrow.scalar_type(), at::kBFloat16);
  EXPECT_LT(worst(wide, narrow), 0.05 * wide.abs().max().item<double>());  // 8 bits of mantissa, 3 layers deep
}

TEST(Decoder, GradientsReachEveryParameter) {
  arch::Decoder d = small();
  Tensors weights = weights_of(d);
  for (auto& [name, tensor] : weights) tensor.set_requires_grad(true);
  run(d, weights, ids_of(1, 9, 6), counting(1, 9)).at("logits").square().sum().backward();
  for (const auto& [name, tensor] : weights) {
    ASSERT_TRUE(tensor.grad().defined()) << name;
    EXPECT_GT(tensor.grad().abs().max().item<float>(), 0) << name;
  }
}

TEST(Adapters, GiveWhatTheMergedWeightsGive) {
  const arch::Decoder d = small();
  arch::Lora lora{.rank = 3, .alpha = 6, .targets = {{}, arch::kAllLinear}};
  const std::vector<arch::Adapter> adapters = arch::adapters_of(lora, arch::describe(d));
  Tensors weights = weights_of(d), merged = weights;
  for (const arch::Parameter& p : arch::parameters_of(adapters)) weights[p.name] = random(p.name, p.shape, 0.1f, 0);
  for (const arch::Adapter& a : adapters)
    merged[a.parameter] = merged[a.parameter].add(weights[a.b].matmul(weights[a.a]).mul(a.scale));
  const at::Tensor ids = ids_of(2, 9, 1);
  const at::Tensor found = run(d, weights, ids, counting(2, 9), {}, adapters).at("logits");
  const at::Tensor wanted = run(d, merged, ids, counting(2, 9)).at("logits");
  const at::Tensor plain = run(d, weights, ids, counting(2, 9)).at("logits");
  // Three layers of sums in another order, of logits of some units.
  EXPECT_LT(found.sub(wanted).abs().max().item<float>(), 1e-4f);
  EXPECT_GT(found.sub(plain).abs().max().item<float>(), 1e-1f);
}

// A small model of experts with an adapter, not zero, on everything that can have one.
struct AdaptedEverywhere {
  arch::Decoder d = small();
  std::vector<arch::Adapter> adapters;
  Tensors weights;
  at::Tensor ids = ids_of(2, 9, 1), plain;

  AdaptedEverywhere() {
    d.family = "qwen2_moe";
    d.experts = {.count = 4, .chosen = 2, .width = 24, .shared_width = 16, .layers = {true, false, true}};
    arch::Lora lora{.rank = 3, .alpha = 6, .targets = {{}, arch::kAllLinear}};
    lora.parameters = {"experts.gate_up_proj", "experts.down_proj"};
    adapters = arch::adapters_of(lora, arch::describe(d));
    weights = weights_of(d);
    for (const arch::Parameter& p : arch::parameters_of(adapters)) weights[p.name] = random(p.name, p.shape, 0.1f, 0);
    plain = run(d, weights, ids, counting(2, 9)).at("logits");
  }
};

// A reference policy is the model itself with its adapters off: no copy, no other arithmetic.
TEST(Adapters, ThatAreOffAreNotThere) {
  const auto& [d, adapters, weights, ids, plain] = AdaptedEverywhere();
  auto given = [&](int64_t off) {
    const at::Tensor word = at::empty({1}, at::kLong).fill_(off);
    return run(d, weights, ids, counting(2, 9), {}, adapters, word).at("logits");
  };
  EXPECT_EQ(worst(given(1), plain), 0);
  EXPECT_GT(worst(given(0), plain), 1e-1);
}

// Nothing reads an adapted weight past its adapter.
TEST(Adapters, EachAloneChangesWhatTheModelGives) {
  const auto& [d, adapters, weights, ids, plain] = AdaptedEverywhere();
  ASSERT_EQ(adapters.size(), 2u * (4 + 2 + 3 + 1) + 7);
  for (const arch::Adapter& adapter : adapters) {
    const at::Tensor found = run(d, weights, ids, counting(2, 9), {}, std::span(&adapter, 1)).at("logits");
    EXPECT_GT(worst(found, plain), 1e-5) << adapter.parameter;
  }
}

}  // namespace
}  // namespace sf::model
