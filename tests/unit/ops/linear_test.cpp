// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "ops/packed_linear.h"
#include "tensor/compare.h"

namespace sf::ops {
namespace {

TEST(PackedLinear, EqualsLinear) {
  const at::Tensor w = at::randn({50, 33}), x = at::randn({7, 33}), bias = at::randn({50});
  const PackedLinear packed = PackedLinear::pack(w, Dtype::kF32);
  // sums of 33 products of unit normals: rounding stays far below 1e-4
  EXPECT_LT(tensor::max_abs_difference(packed.apply(x, bias), at::linear(x, w, bias)), 1e-4);
}

}  // namespace
}  // namespace sf::ops
