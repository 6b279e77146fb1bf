// SPDX-License-Identifier: Apache-2.0
// Tensors of a case, and comparisons with them.
#pragma once
#include "golden.h"
#include "tensor/tensor.h"

namespace sf::golden {

at::Tensor load(const ckpt::SafetensorsFile& file, const std::string& name);
Outcome near(const std::string& what, double found, double wanted, double relative);
Outcome same(const std::string& what, const at::Tensor& found, const at::Tensor& wanted, double absolute,
             double relative = 0);
// The first that did not pass.
Outcome first_failure(std::initializer_list<Outcome> outcomes);

}  // namespace sf::golden
