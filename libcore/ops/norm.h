// SPDX-License-Identifier: Apache-2.0
// RMSNorm (models_text_scoring 1.6.1).
#pragma once
#include "tensor/tensor.h"

namespace sf::ops {

// x: [..., H], weight: [H], of one dtype (fp32 or bf16). y = cast(x * rsqrt(mean(x^2) + eps)) * weight: statistics in
// fp32, cast to x's dtype before the weight. Differentiable in both; rows are independent of each other.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

// The zero-centred form: y = cast(x * rsqrt(mean(x^2) + eps) * (1 + weight)), rounded once. With `groups`, the last
// extent is that many vectors, each with a mean of its own.
at::Tensor rms_norm_centred(const at::Tensor& x, const at::Tensor& weight, double eps, int64_t groups = 1);

}  // namespace sf::ops
