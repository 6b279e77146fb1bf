// SPDX-License-Identifier: Apache-2.0
// Gates whose every element depends on itself alone. (LibTorch's own take another formula for a tensor's last elements:
// a row's bits would depend on how many there are.) Private to this room.
#pragma once
#include "tensor/tensor.h"

namespace sf::gen {

at::Tensor sigmoid(const at::Tensor& x);                                   // of x's dtype, in fp32 inside
at::Tensor gated_by_sigmoid(const at::Tensor& x, const at::Tensor& gate);  // x * sigmoid(gate), rounded once

}  // namespace sf::gen
