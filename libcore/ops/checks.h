// SPDX-License-Identifier: Apache-2.0
// What operators ask of their arguments; a breach is our own fault (exit 70).
#pragma once
#include "base/error.h"
#include "tensor/tensor.h"

namespace sf::ops {

inline bool is_float(const at::Tensor& t) {
  return t.scalar_type() == at::kFloat || t.scalar_type() == at::kBFloat16;
}

}  // namespace sf::ops
