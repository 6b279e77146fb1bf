// SPDX-License-Identifier: Apache-2.0
#include "sf_kernels/gemm.h"

#include <cmath>
#include <cstring>

namespace sf::kernels::reference {

namespace {

float widen(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

// Subnormals count as zero, sign kept.
float flushed(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

}  // namespace

void gemm_f32(Matrix<const float> x, size_t m, Matrix<const float> w, size_t n, size_t k, const float* bias,
              Matrix<float> y) {
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      float sum = 0;
      for (size_t t = 0; t < k; ++t) {
        sum = std::fma(x.data[i * x.row + t * x.column], w.data[j * w.row + t * w.column], sum);
      }
      y.data[i * y.row + j * y.column] = bias ? sum + bias[j] : sum;
    }
  }
}

void gemm_bf16(Matrix<const uint16_t> x, size_t m, Matrix<const uint16_t> w, size_t n, size_t k, const float* bias,
               Matrix<float> y) {
  auto product = [&](size_t i, size_t j, size_t t, float sum) {
    if (t >= k) return sum;
    const float a = flushed(widen(x.data[i * x.row + t * x.column]));
    const float b = flushed(widen(w.data[j * w.row + t * w.column]));
    return flushed(std::fma(a, b, sum));
  };
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      float sum = 0;
      for (size_t t = 0; t < k; t += 2) sum = product(i, j, t, product(i, j, t + 1, sum));
      y.data[i * y.row + j * y.column] = bias ? sum + bias[j] : sum;
    }
  }
}

}  // namespace sf::kernels::reference
