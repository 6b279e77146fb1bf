// SPDX-License-Identifier: Apache-2.0
// The linear layer of training: forward and gradients through the fastest GEMM of this build.
#pragma once
#include "tensor/tensor.h"

namespace sf::ops {

// x: [..., K], w: [N, K], bias: [N] or undefined -> [..., N]; all of one dtype, fp32 or bf16. Differentiable in each.
// Deterministic for equal shapes and threads.
at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias = {});

}  // namespace sf::ops
