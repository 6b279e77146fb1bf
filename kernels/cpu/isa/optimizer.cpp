// SPDX-License-Identifier: Apache-2.0
#include "functions.h"
#include "lanes.h"
#include "spans.h"

namespace sf::kernels::SF_ISA {

void adamw(float* p, const float* grad, float* m, float* v, size_t n, const AdamWConstants& c) {
  spans(n, [&](size_t i, size_t w) {
    const Lanes g = take(grad + i, w) * splat(c.scale);
    const Lanes old = take(m + i, w), first = fma(splat(c.rest1), g - old, old);
    const Lanes second = fma(splat(c.rest2) * g, g, take(v + i, w) * splat(c.beta2));
    const Lanes denominator = fma(sqrt(second), splat(c.root), splat(c.eps));
    give(m + i, first, w);
    give(v + i, second, w);
    give(p + i, fma(splat(-c.step_size), first / denominator, take(p + i, w) * splat(c.keep)), w);
  });
}

void fold_add(float* acc, const float* g, size_t n) {
  spans(n, [&](size_t i, size_t w) { give(acc + i, take(acc + i, w) + take(g + i, w), w); });
}

void fold_add_bf16(float* acc, const uint16_t* g, size_t n) {
  spans(n, [&](size_t i, size_t w) { give(acc + i, take(acc + i, w) + take(g + i, w), w); });
}

size_t first_non_finite(const float* values, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) {
    const uint32_t hits = not_finite(take(values + i, n - i < kLanes ? n - i : kLanes));
    if (hits) return i + static_cast<size_t>(__builtin_ctz(hits));
  }
  return n;
}

void to_bf16(const float* from, uint16_t* to, size_t n) {
  spans(n, [&](size_t i, size_t w) { give(to + i, take(from + i, w), w); });
}

void from_bf16(const uint16_t* from, float* to, size_t n) {
  spans(n, [&](size_t i, size_t w) { give(to + i, take(from + i, w), w); });
}

}  // namespace sf::kernels::SF_ISA
