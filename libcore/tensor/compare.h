// SPDX-License-Identifier: Apache-2.0
// Comparison of tensors, for proofs and reports.
#pragma once
#include <optional>
#include <string>

#include "tensor/tensor.h"

namespace sf::tensor {

// Equal shape, type and bytes (so NaN equals the same NaN, and 0 differs from -0).
bool bit_equal(const at::Tensor& a, const at::Tensor& b);

// The first element whose bytes differ, as text: "[2, 5]: 0.25 and 0.2500001"; or what differs in shape or type.
std::optional<std::string> first_difference(const at::Tensor& a, const at::Tensor& b);

// max |a - b| in fp64; infinity if exactly one is NaN or the signs of infinities differ. Shapes must be equal.
double max_abs_difference(const at::Tensor& a, const at::Tensor& b);

}  // namespace sf::tensor
