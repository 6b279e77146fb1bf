// SPDX-License-Identifier: Apache-2.0
// Memory for time: a function whose inner results are computed again for its gradient instead of being kept.
#pragma once
#include <functional>
#include <vector>

#include "tensor/tensor.h"

namespace sf::ops {

using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

// Equal to f(inputs), values and gradients, but keeps only the inputs (and what f itself captured) until the gradient
// is asked for; then f runs again. f must be pure and reach everything it differentiates through `inputs`; its outputs
// must not alias them.
std::vector<at::Tensor> recompute(TensorFunction f, const std::vector<at::Tensor>& inputs);

}  // namespace sf::ops
