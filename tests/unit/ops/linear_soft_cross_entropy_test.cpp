// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_soft_cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support.h"
#include "tensor/compare.h"
#include "tensor/threads.h"

namespace sf::ops {
namespace {

SoftTeacher teacher(int64_t states, int64_t width, int64_t vocab, int64_t rows, at::ScalarType type = at::kFloat) {
  return {at::randn({states, width}).to(type), at::randn({vocab, width}).to(type), at::rand({states}) + 5,
          at::randint(states, {rows})};
}

at::Tensor teacher_logits(const SoftTeacher& given) {
  return at::linear(given.states.to(at::kFloat), given.head.to(at::kFloat)).index_select(0, given.row_of);
}

at::Tensor plain(const at::Tensor& x, const at::Tensor& w, const SoftTeacher& given, const at::Tensor& weight) {
  return -((at::softmax(teacher_logits(given), -1) * at::log_softmax(at::linear(x, w), -1)).sum(-1) * weight).sum();
}

TEST(LinearSoftCrossEntropy, ValuesAndGradientsEqualTheComposition) {
  for (auto [n, k, v] : {std::array<int64_t, 3>{7, 16, 33}, {1, 5, 4099}, {40, 33, 2048}}) {
    const at::Tensor x = leaf({n, k}), w = leaf({v, k}), weight = at::rand({n});
    const SoftTeacher given = teacher(5, 9, v, n);
    expect_same([&] { return linear_soft_cross_entropy(x, w, given, weight).loss; },
                [&] { return plain(x, w, given, weight); }, {x, w}, 2e-4);  // sums of up to 40 losses of about 20
  }
}

TEST(LinearSoftCrossEntropy, MetricsOfEachRowEqualTheFormula) {
  const at::Tensor x = at::randn({9, 12}), w = at::randn({333, 12}), weight = at::full({9}, 0.5f);
  const SoftTeacher given = teacher(4, 8, 333, 9);
  const LinearSoftCrossEntropy got = linear_soft_cross_entropy(x, w, given, weight);
  const at::Tensor z = at::linear(x, w), t = teacher_logits(given);
  EXPECT_TRUE(tensor::bit_equal(got.argmax, at::argmax(z, -1)));
  const at::Tensor lse = given.lse.index_select(0, given.row_of).unsqueeze(1);
  EXPECT_LT(tensor::max_abs_difference(got.acceptance, at::minimum(at::softmax(z, -1), (t - lse).exp()).sum(-1)), 1e-6);
  const at::Tensor nll = -(at::softmax(t, -1) * at::log_softmax(z, -1)).sum(-1);
  EXPECT_LT(tensor::max_abs_difference(got.nll, nll), 1e-5);  // values of about 10
}

TEST(LinearSoftCrossEntropy, NeitherTheBlocksNorTheThreadsNorTheOrderOfRowsChangeARow) {
  // 131,072 words: 128 rows are a block, so 140 rows are two.
  const int64_t n = 140, k = 4, v = 131072;
  for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({n, k}).to(type).set_requires_grad(true), w = at::randn({v, k}).to(type);
    const SoftTeacher given = teacher(30, 3, v, n, type);
    const at::Tensor weight = at::rand({n});
    const LinearSoftCrossEntropy all = linear_soft_cross_entropy(x, w, given, weight);
    const at::Tensor dx = gradients(all.loss, at::full({}, 1.0f), {x})[0];
    for (int64_t row = 0; row < n; row += 70) {
      const at::Tensor part = x.detach().narrow(0, row, 70).contiguous().set_requires_grad(true);
      const SoftTeacher own{given.states, given.head, given.lse, given.row_of.narrow(0, row, 70)};
      tensor::set_threads(row == 0 ? 1 : 2);
      const LinearSoftCrossEntropy some = linear_soft_cross_entropy(part, w, own, weight.narrow(0, row, 70));
      EXPECT_TRUE(some.nll.equal(all.nll.narrow(0, row, 70)));
      EXPECT_TRUE(some.argmax.equal(all.argmax.narrow(0, row, 70)));
      EXPECT_TRUE(some.acceptance.equal(all.acceptance.narrow(0, row, 70)));
      EXPECT_TRUE(gradients(some.loss, at::full({}, 1.0f), {part})[0].equal(dx.narrow(0, row, 70)));
    }
  }
}

TEST(LinearSoftCrossEntropy, RowsOfNoWeightCostNothingButTheirArgmax) {
  const at::Tensor x = leaf({4, 6}), w = leaf({50, 6});
  const LinearSoftCrossEntropy got = linear_soft_cross_entropy(x, w, teacher(2, 5, 50, 4), at::full({4}, 0.0f));
  EXPECT_EQ(got.loss.item<float>(), 0);
  EXPECT_EQ(got.acceptance.abs().max().item<float>(), 0);
  EXPECT_TRUE(tensor::bit_equal(got.argmax, at::argmax(at::linear(x.detach(), w.detach()), -1)));
  for (const at::Tensor& gradient : gradients(got.loss, at::full({}, 1.0f), {x, w}))
    EXPECT_EQ(gradient.abs().max().item<float>(), 0);
}

TEST(LinearSoftCrossEntropy, ANanReachesLossAndGradient) {
  at::Tensor x = at::randn({2, 6});
  x.mutable_data_ptr<float>()[7] = NAN;
  x.set_requires_grad(true);
  const LinearSoftCrossEntropy got =
      linear_soft_cross_entropy(x, at::randn({40, 6}), teacher(2, 5, 40, 2), at::full({2}, 1.0f));
  EXPECT_TRUE(std::isnan(got.loss.item<float>()));
  EXPECT_FALSE(gradients(got.loss, at::full({}, 1.0f), {x})[0].isfinite().all().item<bool>());
}

TEST(LinearSoftCrossEntropy, LargeLogitsDoNotOverflow) {
  const at::Tensor x = at::randn({3, 6}) * 1e4, w = at::randn({64, 6}), weight = at::full({3}, 1.0f);
  SoftTeacher given = teacher(3, 6, 64, 3);
  given.states = given.states * 1e4;
  const float got = linear_soft_cross_entropy(x, w, given, weight).loss.item<float>();
  EXPECT_LT(std::abs(got / plain(x, w, given, weight).item<float>() - 1), 1e-5);
}

TEST(LinearSoftCrossEntropy, Bf16StaysNearFp32) {
  const at::Tensor x = at::randn({30, 64}).to(at::kBFloat16).set_requires_grad(true);
  const at::Tensor w = (at::randn({500, 64}) / 8).to(at::kBFloat16).set_requires_grad(true);
  const SoftTeacher given = teacher(7, 16, 500, 30, at::kBFloat16);
  const at::Tensor weight = at::full({30}, 1.0 / 30, at::kFloat);
  const at::Tensor x32 = x.detach().to(at::kFloat).set_requires_grad(true),
                   w32 = w.detach().to(at::kFloat).set_requires_grad(true);
  const at::Tensor ours = linear_soft_cross_entropy(x, w, given, weight).loss, want = plain(x32, w32, given, weight);
  EXPECT_NEAR(ours.item<float>(), want.item<float>(), 1e-5);  // products of bf16 are exact in fp32
  const auto got = torch::autograd::grad({ours}, {x, w}), wanted = torch::autograd::grad({want}, {x32, w32});
  // The logits' gradient is rounded to 8 bits once, the result once more: 2^-8 of the largest entries.
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(got[i].scalar_type(), at::kBFloat16);
    EXPECT_LT(tensor::max_abs_difference(got[i].to(at::kFloat), wanted[i]), wanted[i].abs().max().item<float>() / 100);
  }
}

}  // namespace
}  // namespace sf::ops
