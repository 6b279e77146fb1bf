// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding, half-split form (models_text_scoring 1.5).
#pragma once
#include <span>

#include "tensor/tensor.h"

namespace sf::ops {

// cos and sin: F32 [max_len, rotary_dims / 2], computed in fp64, never stored in checkpoints, never cast.
struct RotaryTable {
  at::Tensor cos, sin;
  int64_t length() const { return cos.size(0); }
  int64_t rotary_dims() const { return 2 * cos.size(1); }
};

// `scale` multiplies cos and sin (yarn's attention factor; 1 otherwise).
RotaryTable make_rotary(std::span<const double> inverse_frequency, double scale, int64_t max_len);

// x: [..., S, hd] fp32 or bf16 (e.g. [B, heads, S, hd]); positions: I64 [S], or [B, S] with x's first extent B. The
// first rotary_dims of hd turn: y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin in fp32, rounded once; the rest passes.
// Differentiable in x. Throws kSoftware for a position outside the table.
at::Tensor apply_rotary(const at::Tensor& x, const RotaryTable& table, const at::Tensor& positions);

}  // namespace sf::ops
