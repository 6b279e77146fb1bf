// SPDX-License-Identifier: Apache-2.0
// Sixteen fp32 lanes in AVX-512, AVX2 or plain C++: one source, three builds, the same bits. Every operation rounds
// once; sums across lanes go by one fixed tree. Included only by sources that are compiled once an ISA (SF_ISA names
// it); they keep to raw pointers, so that no inline function of a header is emitted with instructions the machine may
// lack.
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#else
#include <cmath>
#endif

#define SF_INLINE static inline __attribute__((always_inline))

namespace sf::kernels::SF_ISA {
constexpr size_t kLanes = 16;
}

#if defined(__AVX512F__)
#include "lanes_avx512.h"
#elif defined(__AVX2__)
#include "lanes_avx2.h"
#else
#include "lanes_portable.h"
#endif

namespace sf::kernels::SF_ISA {

#if !defined(__AVX512F__)
SF_INLINE Lanes keep(const Lanes& a, size_t n, const Lanes& otherwise) {
  float buffer[kLanes];
  store(buffer, otherwise);
  store(buffer, a, n);
  return load(buffer);
}
SF_INLINE Lanes load_bf16(const uint16_t* p, size_t n) {
  uint16_t buffer[kLanes] = {};
  for (size_t i = 0; i < n; ++i) buffer[i] = p[i];
  return load_bf16(buffer);
}
SF_INLINE void store_bf16(uint16_t* p, const Lanes& x, size_t n) {
  uint16_t buffer[kLanes];
  store_bf16(buffer, x);
  for (size_t i = 0; i < n; ++i) p[i] = buffer[i];
}
#endif

// e^x for x <= 88.7; below -104 it is 0. Cody-Waite reduction, a polynomial of degree 6 on [-ln2/2, ln2/2]: within 1.1
// ulp for normal results. -infinity gives 0, NaN gives NaN.
SF_INLINE Lanes exp(Lanes x) {
  x = max(splat(-104.0f), x);  // in this order NaN stays NaN
  const Lanes n = rint(x * splat(1.44269504088896341f));
  Lanes r = fma(n, splat(-0.693145751953125f), x);
  r = fma(n, splat(-1.428606765330187e-6f), r);
  Lanes p = splat(1.0f / 720);
  p = fma(p, r, splat(1.0f / 120));
  p = fma(p, r, splat(1.0f / 24));
  p = fma(p, r, splat(1.0f / 6));
  p = fma(p, r, splat(0.5f));
  p = fma(p, r, splat(1.0f));
  p = fma(p, r, splat(1.0f));
  return times_power(p, n);
}

template <typename T>
SF_INLINE Lanes get(const T* p) {
  if constexpr (sizeof(T) == 2)
    return load_bf16(p);
  else
    return load(p);
}
template <typename T>
SF_INLINE Lanes get(const T* p, size_t n) {
  if constexpr (sizeof(T) == 2)
    return load_bf16(p, n);
  else
    return load(p, n);
}
template <typename T>
SF_INLINE void put(T* p, Lanes x) {
  if constexpr (sizeof(T) == 2)
    store_bf16(p, x);
  else
    store(p, x);
}
template <typename T>
SF_INLINE void put(T* p, Lanes x, size_t n) {
  if constexpr (sizeof(T) == 2)
    store_bf16(p, x, n);
  else
    store(p, x, n);
}

}  // namespace sf::kernels::SF_ISA
