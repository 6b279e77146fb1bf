// SPDX-License-Identifier: Apache-2.0
#include "ops/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <cmath>

#include "base/error.h"

namespace sf::ops {

RotaryTable make_rotary(std::span<const double> inverse_frequency, double scale, int64_t max_len) {
  const int64_t half = static_cast<int64_t>(inverse_frequency.size());
  RotaryTable table{at::empty({max_len, half}, at::kFloat), at::empty({max_len, half}, at::kFloat)};
  float* cos = table.cos.mutable_data_ptr<float>();
  float* sin = table.sin.mutable_data_ptr<float>();
  for (int64_t p = 0; p < max_len; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * inverse_frequency[i];
      cos[p * half + i] = static_cast<float>(std::cos(angle) * scale);
      sin[p * half + i] = static_cast<float>(std::sin(angle) * scale);
    }
  }
  return table;
}

at::Tensor apply_rotary(const at::Tensor& x, const RotaryTable& table, const at::Tensor& positions) {
  const int64_t half = table.cos.size(1);
  at::Tensor cos = table.cos.index_select(0, positions.flatten()), sin = table.sin.index_select(0, positions.flatten());
  if (positions.dim() == 2) {
    std::vector<int64_t> shape(x.dim(), 1);
    shape[0] = positions.size(0), shape[x.dim() - 2] = positions.size(1), shape[x.dim() - 1] = half;
    cos = cos.view(shape), sin = sin.view(shape);
  }
  const at::Tensor x1 = x.narrow(-1, 0, half).to(at::kFloat), x2 = x.narrow(-1, half, half).to(at::kFloat);
  const at::Tensor y1 = (x1 * cos - x2 * sin).to(x.scalar_type()), y2 = (x2 * cos + x1 * sin).to(x.scalar_type());
  if (2 * half == x.size(-1)) return at::cat({y1, y2}, -1);
  return at::cat({y1, y2, x.narrow(-1, 2 * half, x.size(-1) - 2 * half)}, -1);
}

}  // namespace sf::ops
