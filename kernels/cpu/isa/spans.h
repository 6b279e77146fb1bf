// SPDX-License-Identifier: Apache-2.0
// Walking over elements sixteen at a time; the tail goes through the same operations with fewer lanes.
#pragma once
#include "lanes.h"

namespace sf::kernels::SF_ISA {

// body(i, n): elements [i, i + n), n = kLanes but for the tail.
template <typename Body>
SF_INLINE void spans(size_t n, Body body) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, n - i);
}

template <typename T>
SF_INLINE Lanes take(const T* p, size_t n) {
  return n == kLanes ? get(p) : get(p, n);
}

template <typename T>
SF_INLINE void give(T* p, Lanes x, size_t n) {
  if (n == kLanes)
    put(p, x);
  else
    put(p, x, n);
}

// To the precision of T and back.
template <typename T>
SF_INLINE Lanes rounded(Lanes x) {
  if constexpr (sizeof(T) == 2) {
    uint16_t narrow[kLanes];
    store_bf16(narrow, x);
    return load_bf16(narrow);
  } else {
    return x;
  }
}

}  // namespace sf::kernels::SF_ISA
