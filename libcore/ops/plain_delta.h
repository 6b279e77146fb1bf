// SPDX-License-Identifier: Apache-2.0
// The gated delta rule and its convolution as chains of LibTorch's own operators, as ops/plain.h has the others.
// Private to this room.
#pragma once
#include "ops/delta_rule.h"

namespace sf::ops::plain {

// In chunks, so that a device sees few and large products.
at::Tensor delta_rule(const at::Tensor& mixed, const at::Tensor& decay, const at::Tensor& beta,
                      const DeltaHeads& heads);
at::Tensor conv_silu(const at::Tensor& x, const at::Tensor& weight, int64_t dilation);

}  // namespace sf::ops::plain
