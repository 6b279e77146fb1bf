// SPDX-License-Identifier: Apache-2.0
// Part of lanes.h: plain C++.
#pragma once

namespace sf::kernels::SF_ISA {

struct Lanes {
  float v[kLanes];
};

SF_INLINE uint32_t bits_of(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  return bits;
}
SF_INLINE float float_of(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}
template <typename F>
SF_INLINE Lanes each(F f) {
  Lanes out;
  for (size_t i = 0; i < kLanes; ++i) out.v[i] = f(i);
  return out;
}
SF_INLINE Lanes splat(float x) {
  return each([&](size_t) { return x; });
}
SF_INLINE Lanes load(const float* p) {
  return each([&](size_t i) { return p[i]; });
}
SF_INLINE Lanes load(const float* p, size_t n) {
  return each([&](size_t i) { return i < n ? p[i] : 0.0f; });
}
SF_INLINE void store(float* p, const Lanes& x, size_t n = kLanes) {
  for (size_t i = 0; i < n; ++i) p[i] = x.v[i];
}
SF_INLINE Lanes operator+(const Lanes& a, const Lanes& b) {
  return each([&](size_t i) { return a.v[i] + b.v[i]; });
}
SF_INLINE Lanes operator-(const Lanes& a, const Lanes& b) {
  return each([&](size_t i) { return a.v[i] - b.v[i]; });
}
SF_INLINE Lanes operator*(const Lanes& a, const Lanes& b) {
  return each([&](size_t i) { return a.v[i] * b.v[i]; });
}
SF_INLINE Lanes operator/(const Lanes& a, const Lanes& b) {
  return each([&](size_t i) { return a.v[i] / b.v[i]; });
}
SF_INLINE Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
  return each([&](size_t i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
SF_INLINE Lanes max(const Lanes& a, const Lanes& b) {
  return each([&](size_t i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
SF_INLINE Lanes min(const Lanes& a, const Lanes& b) {
  return each([&](size_t i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
SF_INLINE Lanes sqrt(const Lanes& a) {
  return each([&](size_t i) { return __builtin_sqrtf(a.v[i]); });
}
SF_INLINE Lanes rint(const Lanes& a) {
  return each([&](size_t i) { return __builtin_rintf(a.v[i]); });
}
SF_INLINE Lanes times_power(const Lanes& p, const Lanes& n) {
  return each([&](size_t i) {
    const int whole = n.v[i] == n.v[i] ? static_cast<int>(n.v[i]) : 0, half = whole >> 1;
    return p.v[i] * float_of(static_cast<uint32_t>(half + 127) << 23) *
           float_of(static_cast<uint32_t>(whole - half + 127) << 23);
  });
}
SF_INLINE Lanes where_below(const Lanes& a, const Lanes& b, const Lanes& yes, const Lanes& no) {
  return each([&](size_t i) { return a.v[i] < b.v[i] ? yes.v[i] : no.v[i]; });
}
SF_INLINE Lanes load_bf16(const uint16_t* p) {
  return each([&](size_t i) { return float_of(static_cast<uint32_t>(p[i]) << 16); });
}
SF_INLINE void store_bf16(uint16_t* p, const Lanes& x) {
  for (size_t i = 0; i < kLanes; ++i) {
    const uint32_t bits = bits_of(x.v[i]);
    p[i] = static_cast<uint16_t>((x.v[i] != x.v[i] ? bits | 0x400000 : bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
}
SF_INLINE float sum(const Lanes& x) {
  float v[kLanes];
  store(v, x);
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t i = 0; i < width; ++i) v[i] = v[i] + v[i + width];
  }
  return v[0];
}
SF_INLINE float highest(const Lanes& x) {
  float top = x.v[0];
  for (size_t i = 1; i < kLanes; ++i) top = top > x.v[i] ? top : x.v[i];
  return top;
}
SF_INLINE uint32_t not_finite(const Lanes& x) {
  uint32_t mask = 0;
  for (size_t i = 0; i < kLanes; ++i) mask |= static_cast<uint32_t>((bits_of(x.v[i]) & 0x7f800000) == 0x7f800000) << i;
  return mask;
}
SF_INLINE uint32_t equal(const Lanes& a, const Lanes& b) {
  uint32_t mask = 0;
  for (size_t i = 0; i < kLanes; ++i) mask |= static_cast<uint32_t>(a.v[i] == b.v[i]) << i;
  return mask;
}

SF_INLINE Lanes sums(const Lanes (&v)[16]) {
  return each([&](size_t i) { return sum(v[i]); });
}

}  // namespace sf::kernels::SF_ISA
