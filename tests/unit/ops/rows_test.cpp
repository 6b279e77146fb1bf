// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"
#include "support.h"
#include "tensor/compare.h"

namespace sf::ops {
namespace {

at::Tensor plain_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(at::kFloat);
  return (wide * at::rsqrt(wide.pow(2).mean(-1, true) + eps)).to(x.scalar_type()) * weight;
}

TEST(RmsNorm, ValuesAndGradientsEqualTheFourPrimitiveOps) {
  for (int64_t width : {1, 16, 37, 576}) {
    const at::Tensor x = leaf({2, 9, width}), weight = leaf({width});
    expect_same([&] { return rms_norm(x, weight, 1e-5); }, [&] { return plain_norm(x, weight, 1e-5); }, {x, weight},
                1e-5 * (width == 1 ? 10 : 1));  // width 1: the gradient is a difference of equal terms
  }
}

TEST(RmsNorm, StridedInputsAreRead) {
  const at::Tensor x = leaf({12, 5}), weight = leaf({12});
  expect_same([&] { return rms_norm(x.t(), weight, 1e-6); }, [&] { return plain_norm(x.t(), weight, 1e-6); },
              {x, weight}, 1e-5);
}

TEST(RmsNorm, Bf16RoundsBeforeTheWeight) {
  const at::Tensor x = at::randn({40, 64}).to(at::kBFloat16), weight = at::randn({64}).to(at::kBFloat16);
  const at::Tensor y = rms_norm(x, weight, 1e-6), want = plain_norm(x, weight, 1e-6);
  // Statistics are summed in another order: a value on the border may round the other way, one in a thousand.
  const int64_t different = (y != want).sum().item<int64_t>();
  EXPECT_LT(different, 10);
  EXPECT_LT(tensor::max_abs_difference(y, want), 0.04);
}

TEST(RmsNorm, RowsDoNotNoticeEachOther) {
  const at::Tensor x = at::randn({33, 100}), weight = at::randn({100});
  const at::Tensor all = rms_norm(x, weight, 1e-6);
  EXPECT_TRUE(tensor::bit_equal(rms_norm(x.narrow(0, 20, 1), weight, 1e-6), all.narrow(0, 20, 1)));
}

TEST(SwiGlu, ValuesAndGradientsEqualSiluTimesUp) {
  for (int64_t n : {1, 15, 16, 257}) {
    const at::Tensor gate = leaf({3, n}), up = leaf({3, n});
    expect_same([&] { return swiglu(gate, up); }, [&] { return at::silu(gate) * up; }, {gate, up}, 2e-6);
  }
}

TEST(SwiGlu, ExtremesStayFiniteAndNanStaysNan) {
  at::Tensor gate = at::arange(-1000, 1000, 100, at::kFloat), up = at::full({20}, 2.0f);
  EXPECT_TRUE(swiglu(gate, up).isfinite().all().item<bool>());
  gate.mutable_data_ptr<float>()[3] = NAN;
  EXPECT_TRUE(std::isnan(swiglu(gate, up).const_data_ptr<float>()[3]));
}

at::Tensor plain_rotary(const at::Tensor& x, const RotaryTable& table, const at::Tensor& positions) {
  const int64_t half = table.cos.size(1);
  at::Tensor cos = table.cos.index_select(0, positions.flatten()), sin = table.sin.index_select(0, positions.flatten());
  if (positions.dim() == 2) {
    cos = cos.view({positions.size(0), 1, positions.size(1), half});
    sin = sin.view({positions.size(0), 1, positions.size(1), half});
  }
  const at::Tensor x1 = x.narrow(-1, 0, half), x2 = x.narrow(-1, half, half);
  return at::cat({x1 * cos - x2 * sin, x2 * cos + x1 * sin, x.narrow(-1, 2 * half, x.size(-1) - 2 * half)}, -1);
}

std::vector<double> frequencies(int64_t half) {
  std::vector<double> out;
  for (int64_t i = 0; i < half; ++i)
    out.push_back(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half)));
  return out;
}

TEST(Rotary, EqualsThePlainFormBitForBitWithItsGradient) {
  for (int64_t half : {4, 16, 20}) {
    const RotaryTable table = make_rotary(frequencies(half), 1.5, 64);
    const at::Tensor x = leaf({2, 7, 3, 48}), positions = at::randint(64, {2, 7}, at::kLong);
    const at::Tensor heads = x.transpose(1, 2);
    EXPECT_TRUE(tensor::bit_equal(apply_rotary(heads, table, positions), plain_rotary(heads, table, positions)));
    expect_same([&] { return apply_rotary(x.transpose(1, 2), table, positions); },
                [&] { return plain_rotary(x.transpose(1, 2), table, positions); }, {x}, 1e-6);
  }
}

TEST(Rotary, TheTableIsComputedInFp64) {
  const RotaryTable table = make_rotary(frequencies(32), 1, 5000);
  EXPECT_EQ(table.cos.const_data_ptr<float>()[4999 * 32], static_cast<float>(std::cos(4999.0)));
  EXPECT_EQ(table.sin.const_data_ptr<float>()[4999 * 32 + 3],
            static_cast<float>(std::sin(4999.0 * std::pow(10000.0, -3.0 / 32))));
}

TEST(Rotary, APositionOutsideTheTableIsRefused) {
  const RotaryTable table = make_rotary(frequencies(4), 1, 8);
  EXPECT_THROW(apply_rotary(at::randn({1, 8}), table, at::full({1}, 8, at::kLong)), Error);
  EXPECT_THROW(apply_rotary(at::randn({1, 8}), table, at::full({1}, -1, at::kLong)), Error);
}

}  // namespace
}  // namespace sf::ops
