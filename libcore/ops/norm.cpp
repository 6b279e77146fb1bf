// SPDX-License-Identifier: Apache-2.0
#include "ops/norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/rsqrt.h>

namespace sf::ops {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor y = wide * at::rsqrt(wide.pow(2).mean(-1, true) + eps);
  return y.to(x.scalar_type()) * weight;
}

}  // namespace sf::ops
