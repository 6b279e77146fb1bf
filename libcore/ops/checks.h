// SPDX-License-Identifier: Apache-2.0
// What operators ask of their arguments; a breach is our own fault (exit 70).
#pragma once
#include "base/error.h"
#include "sf_kernels/rows.h"
#include "tensor/tensor.h"

namespace sf::ops {

inline kernels::Type type_of(const at::Tensor& t) {
  SF_ASSERT(t.scalar_type() == at::kFloat || t.scalar_type() == at::kBFloat16);
  return t.scalar_type() == at::kFloat ? kernels::Type::kF32 : kernels::Type::kBF16;
}

}  // namespace sf::ops
