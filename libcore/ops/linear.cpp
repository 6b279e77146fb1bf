// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include <ATen/ops/linear.h>

namespace sf::ops {

at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  return bias.defined() ? at::linear(x, w, bias) : at::linear(x, w);
}

}  // namespace sf::ops
