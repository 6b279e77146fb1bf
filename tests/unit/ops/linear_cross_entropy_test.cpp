// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/linear.h"
#include "support.h"
#include "tensor/threads.h"

namespace sf::ops {
namespace {

at::Tensor plain(const at::Tensor& x, const at::Tensor& w, const at::Tensor& labels, const at::Tensor& weight) {
  return -(at::log_softmax(at::linear(x, w), 1).gather(1, labels.view({-1, 1})).view({-1}) * weight).sum();
}

TEST(LinearCrossEntropy, ValuesAndGradientsEqualTheComposition) {
  for (auto [n, k, v] : {std::array<int64_t, 3>{7, 16, 33}, {1, 5, 4099}, {40, 33, 2048}}) {
    const at::Tensor x = leaf({n, k}), w = leaf({v, k}), labels = at::randint(v, {n}), weight = at::rand({n});
    expect_same([&] { return linear_cross_entropy(x, w, labels, weight).loss; },
                [&] { return plain(x, w, labels, weight); }, {x, w}, 2e-4);  // sums of up to 40 losses of about 20
  }
}

TEST(LinearCrossEntropy, RowsBeyondOneBlockGiveTheBitsOfTheirOwnBlock) {
  // 131,072 words: 128 rows are a block, so 140 rows are two.
  const int64_t n = 140, k = 4, v = 131072;
  for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = leaf({n, k}).detach().to(type).set_requires_grad(true);
    const at::Tensor w = leaf({v, k}).detach().to(type).set_requires_grad(true);
    const at::Tensor labels = at::randint(v, {n}), weight = at::rand({n});
    const LinearCrossEntropy all = linear_cross_entropy(x, w, labels, weight);
    const auto whole = torch::autograd::grad({all.loss}, {x, w});
    at::Tensor parts_dx = at::zeros({n, k}, x.options().requires_grad(false)),
               parts_dw = at::zeros({v, k}, x.options().requires_grad(false));
    for (int64_t row = 0; row < n; row += 70) {
      const at::Tensor part = x.detach().narrow(0, row, 70).contiguous().set_requires_grad(true);
      const LinearCrossEntropy some =
          linear_cross_entropy(part, w, labels.narrow(0, row, 70), weight.narrow(0, row, 70));
      EXPECT_TRUE(some.nll.equal(all.nll.narrow(0, row, 70)));
      EXPECT_TRUE(some.argmax.equal(all.argmax.narrow(0, row, 70)));
      const auto found = torch::autograd::grad({some.loss}, {part, w});
      parts_dx.narrow(0, row, 70).copy_(found[0]);
      parts_dw.add_(found[1]);
    }
    EXPECT_TRUE(parts_dx.equal(whole[0]));
    // The table's gradient is one chain over all rows; a sum of the parts' rounds twice.
    if (type == at::kFloat) EXPECT_LT(tensor::max_abs_difference(parts_dw, whole[1]), 1e-5);
  }
}

TEST(LinearCrossEntropy, Bf16StaysNearFp32) {
  const at::Tensor x = at::randn({30, 64}).to(at::kBFloat16).set_requires_grad(true);
  const at::Tensor w = (at::randn({500, 64}) / 8).to(at::kBFloat16).set_requires_grad(true);
  const at::Tensor labels = at::randint(500, {30}), weight = at::full({30}, 1.0 / 30, at::kFloat);
  const at::Tensor x32 = x.detach().to(at::kFloat).set_requires_grad(true),
                   w32 = w.detach().to(at::kFloat).set_requires_grad(true);
  const LinearCrossEntropy ours = linear_cross_entropy(x, w, labels, weight);
  const at::Tensor want = plain(x32, w32, labels, weight);
  EXPECT_NEAR(ours.loss.item<float>(), want.item<float>(), 1e-5);  // products of bf16 are exact in fp32
  const auto got = torch::autograd::grad({ours.loss}, {x, w}), wanted = torch::autograd::grad({want}, {x32, w32});
  // The logits' gradient is rounded to 8 bits once, the result once more: 2^-8 of the largest entries.
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(got[i].scalar_type(), at::kBFloat16);
    EXPECT_LT(tensor::max_abs_difference(got[i].to(at::kFloat), wanted[i]), wanted[i].abs().max().item<float>() / 100);
  }
}

TEST(LinearCrossEntropy, ARowOfWeightZeroCountsForNothing) {
  const at::Tensor x = leaf({3, 8}), w = leaf({20, 8}), labels = at::randint(20, {3});
  at::Tensor weight = at::full({3}, 0.5, at::kFloat);
  weight[1] = 0;
  const LinearCrossEntropy judged = linear_cross_entropy(x, w, labels, weight);
  EXPECT_EQ(judged.nll[1].item<float>(), 0);
  EXPECT_EQ(torch::autograd::grad({judged.loss}, {x})[0][1].abs().max().item<float>(), 0);
}

TEST(LinearCrossEntropy, WithoutGradientsItIsTheSameLoss) {
  const at::Tensor x = leaf({9, 32}), w = leaf({77, 32}), labels = at::randint(77, {9}), ones = at::full({9}, 1.0f);
  const LinearCrossEntropy with = linear_cross_entropy(x, w, labels, ones);
  const LinearCrossEntropy without = linear_cross_entropy(x.detach(), w.detach(), labels, ones);
  EXPECT_EQ(with.loss.item<float>(), without.loss.item<float>());
  EXPECT_FALSE(without.loss.requires_grad());
  EXPECT_TRUE(without.argmax.equal(at::argmax(ops::linear(x.detach(), w.detach()), 1)));
}

TEST(LinearCrossEntropy, AFrozenTableOrFrozenStatesLeaveTheOtherGradientAsItIs) {
  const at::Tensor x = leaf({6, 16}), w = leaf({40, 16}), labels = at::randint(40, {6}), ones = at::full({6}, 1.0f);
  const auto both = torch::autograd::grad({linear_cross_entropy(x, w, labels, ones).loss}, {x, w});
  const auto dx = torch::autograd::grad({linear_cross_entropy(x, w.detach(), labels, ones).loss}, {x});
  const auto dw = torch::autograd::grad({linear_cross_entropy(x.detach(), w, labels, ones).loss}, {w});
  EXPECT_TRUE(dx[0].equal(both[0]));
  EXPECT_TRUE(dw[0].equal(both[1]));
}

TEST(LinearCrossEntropy, UpstreamScalarsScaleTheGradients) {
  const at::Tensor x = leaf({4, 8}), w = leaf({20, 8}), labels = at::randint(20, {4}), ones = at::full({4}, 1.0f);
  const auto once = torch::autograd::grad({linear_cross_entropy(x, w, labels, ones).loss}, {x, w});
  const auto twice = torch::autograd::grad({linear_cross_entropy(x, w, labels, ones).loss * 2}, {x, w});
  EXPECT_TRUE(twice[0].equal(once[0] * 2));
  EXPECT_TRUE(twice[1].equal(once[1] * 2));
}

TEST(LinearCrossEntropy, ThreadsDoNotChangeBits) {
  const int before = tensor::threads();
  const at::Tensor x = leaf({50, 40}), w = leaf({5000, 40}), labels = at::randint(5000, {50}),
                   ones = at::full({50}, 1.0f);
  std::vector<std::vector<at::Tensor>> results;
  for (int threads : {1, 2, 3}) {
    tensor::set_threads(threads);
    results.push_back(torch::autograd::grad({linear_cross_entropy(x, w, labels, ones).loss}, {x, w}));
  }
  tensor::set_threads(before);
  for (const auto& other : results)
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(other[i].equal(results[0][i]));
}

TEST(LinearCrossEntropy, ALabelOutsideTheVocabularyIsNamed) {
  const at::Tensor x = leaf({1, 4}), w = leaf({10, 4});
  EXPECT_THROW(linear_cross_entropy(x, w, at::full({1}, 10, at::kLong), at::full({1}, 1.0f)), Error);
  EXPECT_THROW(linear_cross_entropy(x, w, at::full({1}, -1, at::kLong), at::full({1}, 1.0f)), Error);
}

}  // namespace
}  // namespace sf::ops
