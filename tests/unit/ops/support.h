// SPDX-License-Identifier: Apache-2.0
// Helpers of the operators' tests.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

#include "tensor/compare.h"
#include "tensor/tensor.h"

namespace sf::ops {

inline at::Tensor leaf(at::IntArrayRef shape) {
  return at::randn(shape).set_requires_grad(true);
}

// Gradients of sum(f() * weights) for fixed random weights; zeros where f does not depend on a leaf.
inline std::vector<at::Tensor> gradients(const at::Tensor& y, const at::Tensor& weights,
                                         const std::vector<at::Tensor>& leaves) {
  std::vector<at::Tensor> grads =
      torch::autograd::grad({y}, leaves, {weights.to(y.scalar_type())}, std::nullopt, false, true);
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) grads[i] = at::zeros_like(leaves[i]);
  }
  return grads;
}

// Values and gradients of two differentiable functions agree within `bound` (absolute, at values of about 1).
inline void expect_same(const std::function<at::Tensor()>& ours, const std::function<at::Tensor()>& theirs,
                        const std::vector<at::Tensor>& leaves, double bound) {
  const at::Tensor y = ours(), want = theirs();
  ASSERT_EQ(y.sizes(), want.sizes());
  EXPECT_LT(tensor::max_abs_difference(y, want), bound);
  const at::Tensor weights = at::randn(y.sizes());
  const auto got = gradients(y, weights, leaves), expected = gradients(want, weights, leaves);
  for (size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_LT(tensor::max_abs_difference(got[i], expected[i]), bound) << "gradient of leaf " << i;
  }
}

}  // namespace sf::ops
