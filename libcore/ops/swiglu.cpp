// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/silu.h>

namespace sf::ops {

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return (at::silu(gate.to(at::kFloat)) * up.to(at::kFloat)).to(gate.scalar_type());
}

}  // namespace sf::ops
