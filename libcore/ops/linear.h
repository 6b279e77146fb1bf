// SPDX-License-Identifier: Apache-2.0
// The linear layer of training: forward and gradients through the packed product.
#pragma once
#include "tensor/tensor.h"

namespace sf::ops {

// x: [..., K], w: [N, K], bias: [N] or undefined -> [..., N]; all of one dtype, fp32 or bf16. Differentiable in each.
// fp32 sums, one chain of fma in ascending order an element (bf16: in pairs, rounded once at the end), so neither
// threads nor the instruction set change bits, and a row of the result (and of x's gradient) does not depend on the
// other rows.
at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias = {});

}  // namespace sf::ops
