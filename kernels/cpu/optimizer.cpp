// SPDX-License-Identifier: Apache-2.0
#include "sf_kernels/optimizer.h"

#include <cmath>
#include <cstring>

namespace sf::kernels {

void adamw(float* p, const float* grad, float* m, float* v, size_t n, const AdamWConstants& c) {
  reference::adamw(p, grad, m, v, n, c);
}
void fold_add(float* acc, const float* g, size_t n) {
  for (size_t i = 0; i < n; ++i) acc[i] += g[i];
}
void from_bf16(const uint16_t* from, float* to, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
    std::memcpy(to + i, &bits, 4);
  }
}
void fold_add_bf16(float* acc, const uint16_t* g, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    float wide;
    from_bf16(g + i, &wide, 1);
    acc[i] += wide;
  }
}
size_t first_non_finite(const float* values, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if (!std::isfinite(values[i])) return i;
  }
  return n;
}
void to_bf16(const float* from, uint16_t* to, size_t n) {
  reference::to_bf16(from, to, n);
}
size_t add_squares(const float* values, size_t n, int64_t* limbs) {
  return reference::add_squares(values, n, limbs);
}

}  // namespace sf::kernels
