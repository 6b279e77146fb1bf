// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/topk.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/linear.h"
#include "ops/packed_linear.h"
#include "support.h"
#include "tensor/compare.h"
#include "tensor/threads.h"

namespace sf::ops {
namespace {

class PackedLinearOf : public testing::TestWithParam<Dtype> {};

TEST_P(PackedLinearOf, EqualsLinear) {
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{1, 16, 4}, {7, 50, 33}, {13, 100, 64}, {64, 33, 129}, {3, 1, 1}}) {
    const at::ScalarType type = GetParam() == Dtype::kF32 ? at::kFloat : at::kBFloat16;
    const at::Tensor w = at::randn({n, k}).to(type), x = at::randn({m, k}).to(type), bias = at::randn({n});
    const at::Tensor want = at::linear(x.to(at::kDouble), w.to(at::kDouble), bias.to(at::kDouble));
    const PackedLinear packed = PackedLinear::pack(w, GetParam());
    // fp32 sums of at most 129 products of unit normals: errors of about 129 * 2^-24 * 10
    EXPECT_LT(tensor::max_abs_difference(packed.apply_fp32(x, bias), want), 1e-4) << m << " " << n << " " << k;
    EXPECT_EQ(packed.apply(x, bias).scalar_type(), type);
    EXPECT_EQ(packed.out_features(), n);
    EXPECT_EQ(packed.in_features(), k);
  }
}

TEST_P(PackedLinearOf, ARowsBitsDependOnThatRowAlone) {
  const int64_t n = 150, k = 77;
  const PackedLinear packed = PackedLinear::pack(at::randn({n, k}), GetParam());
  const at::Tensor x = at::randn({64, k}), all = packed.apply(x);
  for (int64_t m = 1; m <= 64; ++m) {
    for (int64_t first : {int64_t{0}, (64 - m) / 2, 64 - m}) {
      const at::Tensor some = packed.apply(x.narrow(0, first, m));
      ASSERT_TRUE(tensor::bit_equal(some, all.narrow(0, first, m))) << m << " rows from " << first;
    }
  }
}

TEST_P(PackedLinearOf, ThreadsDoNotChangeBits) {
  const PackedLinear packed = PackedLinear::pack(at::randn({300, 65}), GetParam());
  const at::Tensor x = at::randn({5, 65}), head = at::randn({9, 65});
  const int before = tensor::threads();
  tensor::set_threads(1);
  const at::Tensor one = packed.apply(x);
  const Top1 top = argmax_and_lse(head, packed);
  tensor::set_threads(3);
  EXPECT_TRUE(tensor::bit_equal(packed.apply(x), one));
  EXPECT_TRUE(tensor::bit_equal(argmax_and_lse(head, packed).lse, top.lse));
  tensor::set_threads(before);
}

TEST_P(PackedLinearOf, StridesOfWeightAndInputDoNotMatter) {
  const at::Tensor w = at::randn({40, 24}), x = at::randn({6, 24});
  const at::Tensor wt = w.t().contiguous().t(), xt = x.t().contiguous().t();
  const at::Tensor want = PackedLinear::pack(w, GetParam()).apply(x);
  EXPECT_TRUE(tensor::bit_equal(PackedLinear::pack(wt, GetParam()).apply(xt), want));
}

TEST_P(PackedLinearOf, Top1IsTheArgmaxOfTheLogitsAndLseTheirLogSumExp) {
  for (int64_t n : {1, 15, 511, 512, 513, 2000}) {
    const PackedLinear head = PackedLinear::pack(at::randn({n, 31}), GetParam());
    const at::Tensor x = at::randn({17, 31}), logits = head.apply_fp32(x);
    const Top1 got = argmax_and_lse(x, head);
    EXPECT_TRUE(tensor::bit_equal(got.top1.to(at::kLong), at::argmax(logits, -1))) << n;
    const at::Tensor lse = at::logsumexp(logits.to(at::kDouble), {-1});
    EXPECT_LT(tensor::max_abs_difference(got.lse, lse), 4e-6) << n;  // two ulp of values near 16
    if (n == 1) continue;
    const at::Tensor two = std::get<0>(at::topk(logits, 2));
    EXPECT_TRUE(tensor::bit_equal(got.margin, two.select(1, 0) - two.select(1, 1))) << n;
  }
}

TEST_P(PackedLinearOf, SummariesOfARowDependOnThatRowAlone) {
  const PackedLinear head = PackedLinear::pack(at::randn({1100, 40}), GetParam());
  const at::Tensor x = at::randn({40, 40});
  const Top1 all = argmax_and_lse(x, head);
  for (int64_t m : {1, 2, 5, 12, 13, 31}) {
    const Top1 some = argmax_and_lse(x.narrow(0, 7, m).contiguous(), head);
    if (m > 33) break;
    EXPECT_TRUE(tensor::bit_equal(some.lse, all.lse.narrow(0, 7, m)));
    EXPECT_TRUE(tensor::bit_equal(some.margin, all.margin.narrow(0, 7, m)));
  }
}

INSTANTIATE_TEST_SUITE_P(Compute, PackedLinearOf, testing::Values(Dtype::kF32, Dtype::kBF16));

TEST(PackedLinear, OfTwoEqualLogitsTheLowestIdWins) {
  at::Tensor w = at::randn({1500, 8});
  w.select(0, 700).copy_(w.select(0, 1200).mul_(10).abs_());
  w.select(0, 1200).copy_(w.select(0, 700));
  const at::Tensor x = at::randn({1, 8}).abs_();
  const Top1 got = argmax_and_lse(x, PackedLinear::pack(w, Dtype::kF32));
  EXPECT_EQ(got.top1.item<int>(), 700);
  EXPECT_EQ(got.margin.item<float>(), 0);
}

TEST(PackedLinear, OtherComputeTypesAreRefused) {
  EXPECT_THROW(PackedLinear::pack(at::randn({4, 4}), Dtype::kF16), Error);
}

TEST(Linear, GradientsEqualThoseOfTheComposite) {
  for (bool with_bias : {false, true}) {
    const at::Tensor x = leaf({3, 17, 24}), w = leaf({35, 24}), bias = leaf({35});
    auto ours = [&] { return with_bias ? ops::linear(x, w, bias) : ops::linear(x, w); };
    auto theirs = [&] { return with_bias ? at::linear(x, w, bias) : at::linear(x, w); };
    std::vector<at::Tensor> leaves{x, w};
    if (with_bias) leaves.push_back(bias);
    expect_same(ours, theirs, leaves, 2e-5);  // fp32 sums of up to 51 products
  }
}

TEST(Linear, TransposedAndNarrowedInputsAreRead) {
  const at::Tensor x = leaf({24, 17}), w = leaf({24, 35});
  expect_same([&] { return ops::linear(x.t(), w.t().narrow(0, 3, 20)); },
              [&] { return at::linear(x.t(), w.t().narrow(0, 3, 20)); }, {x, w}, 2e-5);
}

TEST(Linear, Bf16RoundsOnceAtTheEnd) {
  const at::Tensor x = at::randn({19, 40}).to(at::kBFloat16), w = at::randn({21, 40}).to(at::kBFloat16);
  const at::Tensor exact = at::linear(x.to(at::kDouble), w.to(at::kDouble));
  const at::Tensor y = ops::linear(x, w);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_LT(
      tensor::max_abs_difference(y.to(at::kDouble) / exact.abs().clamp_min(0.1), exact / exact.abs().clamp_min(0.1)),
      1.0 / 256 + 1e-4);  // half an ulp of bf16, and fp32's own error
}

}  // namespace
}  // namespace sf::ops
