// SPDX-License-Identifier: Apache-2.0
// The matrix product behind linear layers. Private to this room.
#pragma once
#include "tensor/tensor.h"

namespace sf::ops {

// x [M, K], w [N, K] of one type (fp32 or bf16), any strides; bias: N floats or null -> x w^T + bias [M, N], in fp32 or
// rounded once to their own type.
// Packs w afresh: its cost is one pass over w against M passes of the product. Numbers as in linear.h.
at::Tensor product(const at::Tensor& x, const at::Tensor& w, at::ScalarType to, const float* bias = nullptr);

}  // namespace sf::ops
