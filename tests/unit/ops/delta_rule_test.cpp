// SPDX-License-Identifier: Apache-2.0
#include "ops/delta_rule.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "sf_kernels/delta.h"
#include "sf_kernels/isa.h"
#include "support.h"
#include "tensor/memory.h"

namespace sf::ops {
namespace {

struct Inputs {
  at::Tensor mixed, decay, beta;
  std::vector<at::Tensor> leaves() const { return {mixed, decay, beta}; }
};

// Decays from nearly none to a factor of e^-3 a token.
Inputs inputs(const DeltaHeads& heads, int64_t batch, int64_t length) {
  return {leaf({batch, length, heads.channels()}),
          (at::rand({batch, length, heads.value_heads}).pow(3) * -3).detach().set_requires_grad(true),
          at::rand({batch, length, heads.value_heads}).set_requires_grad(true)};
}

// The recurrence as it is written, token by token, in the arguments' own precision.
at::Tensor recurrence(const Inputs& in, const DeltaHeads& h) {
  const int64_t keys = h.key_heads * h.key_dim, group = h.value_heads / h.key_heads;
  auto part = [&](int64_t first, int64_t count, int64_t dim) {
    return in.mixed.narrow(2, first, count * dim).unflatten(-1, {count, dim});
  };
  auto normed = [](const at::Tensor& x) { return x * at::rsqrt(x.pow(2).sum(-1, true) + 1e-6); };
  const at::Tensor q = normed(part(0, h.key_heads, h.key_dim)).repeat_interleave(group, 2) / std::sqrt(h.key_dim);
  const at::Tensor k = normed(part(keys, h.key_heads, h.key_dim)).repeat_interleave(group, 2);
  const at::Tensor v = part(2 * keys, h.value_heads, h.value_dim);
  at::Tensor state = at::zeros({in.mixed.size(0), h.value_heads, h.key_dim, h.value_dim}, in.mixed.options());
  std::vector<at::Tensor> out;
  for (int64_t t = 0; t < in.mixed.size(1); ++t) {
    state = state * at::exp(in.decay.select(1, t)).unsqueeze(-1).unsqueeze(-1);
    const at::Tensor key = k.select(1, t).unsqueeze(-1), query = q.select(1, t).unsqueeze(-1);
    const at::Tensor known = (state * key).sum(-2);
    const at::Tensor fix = in.beta.select(1, t).unsqueeze(-1) * (v.select(1, t) - known);
    state = state + key * fix.unsqueeze(-2);
    out.push_back((state * query).sum(-2));
  }
  return at::stack(out, 1);
}

constexpr DeltaHeads kShapes[] = {{1, 1, 16, 16}, {2, 4, 8, 12}, {2, 2, 24, 40}, {1, 3, 5, 7}};

TEST(DeltaRule, ChunksEqualTheRecurrenceInValuesAndGradients) {
  for (const DeltaHeads& heads : kShapes)
    for (int64_t length : {1, 15, 64, 65, 150}) {
      const Inputs in = inputs(heads, 2, length);
      expect_same([&] { return delta_rule(in.mixed, in.decay, in.beta, heads); }, [&] { return recurrence(in, heads); },
                  in.leaves(), 5e-5);
    }
}

TEST(DeltaRule, GradientsAreCentralDifferencesOfTheRecurrence) {
  const DeltaHeads heads{1, 2, 6, 5};
  const Inputs in = inputs(heads, 1, 70);
  const at::Tensor weights = at::randn({1, 70, 2, 5});
  const auto found = gradients(delta_rule(in.mixed, in.decay, in.beta, heads), weights, in.leaves());
  const Inputs wide{in.mixed.detach().to(at::kDouble), in.decay.detach().to(at::kDouble),
                    in.beta.detach().to(at::kDouble)};
  const std::vector<at::Tensor> moved = wide.leaves();
  for (size_t i = 0; i < moved.size(); ++i)
    for (int64_t place = 1; place < moved[i].numel(); place += moved[i].numel() / 7) {
      double* at = moved[i].data_ptr<double>() + place;
      const double kept = *at, step = 1e-5;
      double value[2];
      for (int side : {0, 1}) {
        *at = kept + (side == 0 ? step : -step);
        value[side] = (recurrence(wide, heads) * weights).sum().item<double>();
      }
      *at = kept;
      const double slope = (value[0] - value[1]) / (2 * step);
      EXPECT_NEAR(found[i].reshape({-1})[place].item<double>(), slope, 2e-5 * (1 + std::abs(slope)));
    }
}

TEST(DeltaRule, BetaOfZeroAndOneAndADecayThatForgetsAllAreExact) {
  const DeltaHeads heads{1, 1, 16, 16};
  Inputs in = inputs(heads, 1, 80);
  in.beta = at::rand({1, 80, 1}).round().set_requires_grad(true);
  in.decay = (at::rand({1, 80, 1}).round() * -200).set_requires_grad(true);
  expect_same([&] { return delta_rule(in.mixed, in.decay, in.beta, heads); }, [&] { return recurrence(in, heads); },
              in.leaves(), 5e-5);
}

TEST(DeltaRule, StepsEqualTheReferenceAndASequenceMayBeCutAnywhere) {
  const DeltaHeads heads{2, 4, 24, 40};
  const Inputs in = inputs(heads, 2, 33);
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  at::Tensor whole = at::zeros({2, 4, 24, 40}), cut = whole.clone(), plain = whole.clone();
  const at::Tensor all = delta_steps(in.mixed, in.decay, in.beta, heads, whole);
  std::vector<at::Tensor> parts;
  for (auto [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {1, 20}, {21, 12}})
    parts.push_back(delta_steps(in.mixed.narrow(1, first, count), in.decay.narrow(1, first, count),
                                in.beta.narrow(1, first, count), heads, cut));
  EXPECT_TRUE(tensor::bit_equal(all, at::cat(parts, 1)));
  EXPECT_TRUE(tensor::bit_equal(whole, cut));
  EXPECT_LT(tensor::max_abs_difference(all, recurrence(in, heads)), 1e-5);
  EXPECT_LT(tensor::max_abs_difference(all, delta_rule(in.mixed, in.decay, in.beta, heads)), 1e-5);
}

TEST(DeltaRule, EveryInstructionSetGivesTheSameBits) {
  const DeltaHeads heads{2, 4, 24, 20};
  const Inputs in = inputs(heads, 1, 100);
  const at::Tensor weights = at::randn({1, 100, 4, 20});
  std::vector<at::Tensor> first;
  for (kernels::Isa isa : {kernels::Isa::kPortable, kernels::Isa::kAvx2, kernels::Isa::kAvx512}) {
    if (isa > kernels::best_isa()) continue;
    kernels::use_isa(isa);
    const at::Tensor y = delta_rule(in.mixed, in.decay, in.beta, heads);
    std::vector<at::Tensor> all = gradients(y, weights, in.leaves());
    all.push_back(y);
    if (first.empty()) first = all;
    for (size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(tensor::bit_equal(all[i], first[i])) << i;
  }
  kernels::use_isa(kernels::best_isa());
}

TEST(DeltaRule, Bf16IsTheFp32FormRoundedOnce) {
  const DeltaHeads heads{2, 2, 16, 16};
  const Inputs in = inputs(heads, 1, 90);
  const at::Tensor narrow = in.mixed.detach().to(at::kBFloat16);
  const at::Tensor found = delta_rule(narrow, in.decay, in.beta, heads);
  const at::Tensor wanted = delta_rule(narrow.to(at::kFloat), in.decay, in.beta, heads).to(at::kBFloat16);
  EXPECT_TRUE(tensor::bit_equal(found, wanted));
}

TEST(ConvSilu, EqualsTheSumOfItsTapsInValuesAndGradients) {
  for (auto [channels, taps, dilation] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 4, 1}, {80, 4, 1}, {70, 4, 3}, {5, 2, 3}}) {
    const at::Tensor x = leaf({2, 11, channels}), weight = leaf({channels, taps});
    auto plain = [&] {
      const at::Tensor before = at::zeros({2, (taps - 1) * dilation, channels});
      const at::Tensor padded = at::cat({before, x}, 1);
      at::Tensor sum = at::zeros({2, 11, channels});
      for (int64_t j = 0; j < taps; ++j) sum = sum + padded.narrow(1, j * dilation, 11) * weight.select(1, j);
      return at::silu(sum);
    };
    expect_same([&] { return conv_silu(x, weight, dilation); }, plain, {x, weight}, 1e-5);
  }
}

}  // namespace
}  // namespace sf::ops
