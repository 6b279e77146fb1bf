// SPDX-License-Identifier: Apache-2.0
#include <cstring>

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

#if defined(__AVX512F__)
// Squares are exact in fp64, and so is what a whole number of a unit leaves of them: windows of 50 bits below the
// largest square take all of each value that is within 2^-50 of the largest. Other blocks are not ours.
bool square_block(const float* values, size_t n, SquareBlock& out) {
  __m512 most = _mm512_setzero_ps();
  for (size_t i = 0; i < n; i += kLanes) {
    const Lanes x = take(values + i, n - i < kLanes ? n - i : kLanes);
    if (not_finite(x)) return false;
    most = _mm512_max_ps(most, _mm512_abs_ps(x.v));
  }
  const float top = highest({most});
  out = {};
  if (top == 0) return true;
  if (top < 0x1p-75f) return false;
  int exponent = 0;
  static_cast<void>(__builtin_frexpf(top, &exponent));  // every square is below 2^(2 exponent)
  const __m512d unit = _mm512_set1_pd(__builtin_ldexp(1, 50 - 2 * exponent)), next = _mm512_set1_pd(0x1p50);
  __m512i sum[SquareBlock::kWindows] = {};
  __mmask8 left = 0;
  auto add = [&](__m256 half) {
    const __m512d x = _mm512_cvtps_pd(half);
    __m512d rest = _mm512_mul_pd(_mm512_mul_pd(x, unit), x);
#pragma GCC unroll 3
    for (size_t i = 0; i < SquareBlock::kWindows; ++i) {
      const __m512i whole = _mm512_cvttpd_epi64(rest);
      sum[i] = _mm512_add_epi64(sum[i], whole);
      rest = _mm512_mul_pd(_mm512_sub_pd(rest, _mm512_cvtepi64_pd(whole)), next);
    }
    left |= _mm512_cmp_pd_mask(rest, _mm512_setzero_pd(), _CMP_NEQ_OQ);
  };
  for (size_t i = 0; i < n; i += kLanes) {
    const Lanes x = take(values + i, n - i < kLanes ? n - i : kLanes);
    add(_mm512_castps512_ps256(x.v));
    add(_mm512_extractf32x8_ps(x.v, 1));
  }
  for (size_t i = 0; i < SquareBlock::kWindows; ++i) {
    out.sum[i] = static_cast<uint64_t>(_mm512_reduce_add_epi64(sum[i]));
    out.exponent[i] = 2 * exponent - 50 * static_cast<int>(i + 1);
  }
  return left == 0;
}
#else
bool square_block(const float*, size_t, SquareBlock&) {
  return false;
}
#endif
// The loops of both are the compiler's to make lanes of: whole numbers alone, but for a product and a sum.
float largest(const float* values, size_t n) {
  uint32_t most = 0;
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, values + i, 4);
    bits &= 0x7fffffffu;
    most = bits > most ? bits : most;
  }
  float value;
  std::memcpy(&value, &most, 4);
  return value;
}

// From 2^-6 on three bits of fraction are kept; below, numbers are multiples of 2^-9, to which adding 2^14 rounds.
void to_e4m3(const float* from, uint8_t* to, size_t n, float factor) {
  constexpr uint32_t k448 = 0x43e00000u, kLeastNormal = 0x3c800000u, k16384 = 0x46800000u;
  for (size_t i = 0; i < n; ++i) {
    const float x = from[i] * factor;
    uint32_t bits, multiple;
    std::memcpy(&bits, &x, 4);
    const uint32_t beyond = bits & 0x7fffffffu, size = beyond < k448 ? beyond : k448;
    float magnitude;
    std::memcpy(&magnitude, &size, 4);
    const float raised = magnitude + 16384.0f;
    std::memcpy(&multiple, &raised, 4);
    const uint32_t normal = ((size + 0x7ffffu + ((size >> 20) & 1u)) >> 20) - (120u << 3);
    const uint32_t code = size < kLeastNormal ? multiple - k16384 : normal;
    to[i] = static_cast<uint8_t>(code | ((bits >> 24) & 0x80u));
  }
}

}  // namespace sf::kernels::SF_ISA
