// SPDX-License-Identifier: Apache-2.0
// The inner products of attention, forward and backward.
#pragma once
#include "lanes.h"
#include "sf_kernels/attention.h"

namespace sf::kernels::SF_ISA {

constexpr size_t kTile = 4;  // query rows that share the loads of a key

// The keys of one block that a row sees, relative to the block's start; empty if begin >= end.
struct Visible {
  size_t begin, end;
};
SF_INLINE Visible visible(size_t low, size_t high, size_t start) {
  const size_t stop = start + kKeyBlock;
  if (high <= start || low >= stop) return {0, 0};
  return {low > start ? low - start : 0, high < stop ? high - start : kKeyBlock};
}

// Lane i: x . keys[i], one fma a chunk of 16 dims in order, then the tree of sums().
template <typename T>
SF_INLINE Lanes dots(const float* x, const T* const (&keys)[kLanes], size_t dims) {
  Lanes acc[kLanes];
#pragma GCC unroll 16
  for (size_t i = 0; i < kLanes; ++i) acc[i] = splat(0.0f);
  for (size_t d = 0; d < dims; d += kLanes) {
    const Lanes value = load(x + d);
#pragma GCC unroll 16
    for (size_t i = 0; i < kLanes; ++i) acc[i] = fma(value, get(keys[i] + d), acc[i]);
  }
  return sums(acc);
}

// p[j] = scale * x . k[j] for j < n, in whole groups of 16; what lies beyond n repeats key n - 1. Returns the groups.
template <typename T>
SF_INLINE size_t scores(const float* x, const T* k, size_t stride, size_t n, size_t dims, float scale, float* p) {
  const size_t groups = (n + kLanes - 1) / kLanes;
  for (size_t g = 0; g < groups; ++g) {
    const T* keys[kLanes];
    for (size_t i = 0; i < kLanes; ++i) {
      const size_t j = g * kLanes + i;
      keys[i] = k + (j < n ? j : n - 1) * stride;
    }
    store(p + g * kLanes, dots(x, keys, dims) * splat(scale));
  }
  return groups;
}

// Minus infinity for what the row does not see.
SF_INLINE void hide(float* p, Visible see, size_t groups) {
  for (size_t j = 0; j < see.begin; ++j) p[j] = -__builtin_inff();
  for (size_t j = see.end; j < groups * kLanes; ++j) p[j] = -__builtin_inff();
}

// to[r] = to[r] * factor[r] + sum over j in [begin, end) of p[r][j] * v[j], for R rows and C chunks of dims.
template <size_t R, size_t C, typename T>
SF_INLINE void weigh_chunks(float* const* to, const float* factor, const float (*p)[kKeyBlock], size_t begin,
                            size_t end, const T* v, size_t stride, size_t d) {
  Lanes acc[R][C];
#pragma GCC unroll 4
  for (size_t r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (size_t c = 0; c < C; ++c) acc[r][c] = load(to[r] + d + c * kLanes) * splat(factor[r]);
  }
  for (size_t j = begin; j < end; ++j) {
    Lanes value[C];
#pragma GCC unroll 4
    for (size_t c = 0; c < C; ++c) value[c] = get(v + j * stride + d + c * kLanes);
#pragma GCC unroll 4
    for (size_t r = 0; r < R; ++r) {
      const Lanes weight = splat(p[r][j]);
#pragma GCC unroll 4
      for (size_t c = 0; c < C; ++c) acc[r][c] = fma(weight, value[c], acc[r][c]);
    }
  }
#pragma GCC unroll 4
  for (size_t r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (size_t c = 0; c < C; ++c) store(to[r] + d + c * kLanes, acc[r][c]);
  }
}

template <size_t R, typename T>
SF_INLINE void weigh(float* const* to, const float* factor, const float (*p)[kKeyBlock], size_t begin, size_t end,
                     const T* v, size_t stride, size_t dims) {
  size_t d = 0;
  for (; d + 4 * kLanes <= dims; d += 4 * kLanes) weigh_chunks<R, 4>(to, factor, p, begin, end, v, stride, d);
  for (; d < dims; d += kLanes) weigh_chunks<R, 1>(to, factor, p, begin, end, v, stride, d);
}

// to[j] += sum over r in order of p[r][j] * x[r], for keys [begin, end): the transposed product of the gradients.
template <size_t R, size_t C>
SF_INLINE void spread_chunks(float* to, const float (*p)[kKeyBlock], size_t begin, size_t end, const float* const* x,
                             size_t dims, size_t d) {
  Lanes value[R][C];
#pragma GCC unroll 4
  for (size_t r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (size_t c = 0; c < C; ++c) value[r][c] = load(x[r] + d + c * kLanes);
  }
  for (size_t j = begin; j < end; ++j) {
    float* row = to + j * dims + d;
    Lanes acc[C];
#pragma GCC unroll 4
    for (size_t c = 0; c < C; ++c) acc[c] = load(row + c * kLanes);
#pragma GCC unroll 4
    for (size_t r = 0; r < R; ++r) {
      const Lanes weight = splat(p[r][j]);
#pragma GCC unroll 4
      for (size_t c = 0; c < C; ++c) acc[c] = fma(weight, value[r][c], acc[c]);
    }
#pragma GCC unroll 4
    for (size_t c = 0; c < C; ++c) store(row + c * kLanes, acc[c]);
  }
}

template <size_t R>
SF_INLINE void spread(float* to, const float (*p)[kKeyBlock], size_t begin, size_t end, const float* const* x,
                      size_t dims) {
  size_t d = 0;
  for (; d + 4 * kLanes <= dims; d += 4 * kLanes) spread_chunks<R, 4>(to, p, begin, end, x, dims, d);
  for (; d < dims; d += kLanes) spread_chunks<R, 1>(to, p, begin, end, x, dims, d);
}

}  // namespace sf::kernels::SF_ISA
