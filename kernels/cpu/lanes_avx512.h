// SPDX-License-Identifier: Apache-2.0
// Part of lanes.h: AVX-512.
#pragma once

namespace sf::kernels::SF_ISA {

struct Lanes {
  __m512 v;
};
using Mask = __mmask16;

SF_INLINE Mask first(size_t n) {
  return static_cast<Mask>((1u << n) - 1);
}
SF_INLINE Lanes splat(float x) {
  return {_mm512_set1_ps(x)};
}
SF_INLINE Lanes load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
SF_INLINE Lanes load(const float* p, size_t n) {
  return {_mm512_maskz_loadu_ps(first(n), p)};
}
SF_INLINE void store(float* p, Lanes x) {
  _mm512_storeu_ps(p, x.v);
}
SF_INLINE void store(float* p, Lanes x, size_t n) {
  _mm512_mask_storeu_ps(p, first(n), x.v);
}
SF_INLINE Lanes operator+(Lanes a, Lanes b) {
  return {_mm512_add_ps(a.v, b.v)};
}
SF_INLINE Lanes operator-(Lanes a, Lanes b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
SF_INLINE Lanes operator*(Lanes a, Lanes b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
SF_INLINE Lanes operator/(Lanes a, Lanes b) {
  return {_mm512_div_ps(a.v, b.v)};
}
SF_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
SF_INLINE Lanes max(Lanes a, Lanes b) {
  return {_mm512_max_ps(a.v, b.v)};
}  // a > b ? a : b
SF_INLINE Lanes min(Lanes a, Lanes b) {
  return {_mm512_min_ps(a.v, b.v)};
}  // a < b ? a : b
SF_INLINE Lanes sqrt(Lanes a) {
  return {_mm512_sqrt_ps(a.v)};
}
SF_INLINE Lanes rint(Lanes a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
SF_INLINE Lanes times_power(Lanes p, Lanes n) {
  return {_mm512_scalef_ps(p.v, n.v)};
}  // p 2^n, n whole
SF_INLINE Lanes keep(Lanes a, size_t n, Lanes otherwise) {
  return {_mm512_mask_blend_ps(first(n), otherwise.v, a.v)};
}
SF_INLINE Lanes where_below(Lanes a, Lanes b, Lanes yes, Lanes no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
SF_INLINE Lanes load_bf16(const uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
SF_INLINE Lanes load_bf16(const uint16_t* p, size_t n) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first(n), p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
SF_INLINE __m256i to_bf16(Lanes x) {
  const __m512i bits = _mm512_castps_si512(x.v);
  const __m512i even = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff)));
  const Mask nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_blend_epi32(nan, up, quiet), 16));
}
SF_INLINE void store_bf16(uint16_t* p, Lanes x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_bf16(x));
}
SF_INLINE void store_bf16(uint16_t* p, Lanes x, size_t n) {
  _mm256_mask_storeu_epi16(p, first(n), to_bf16(x));
}
SF_INLINE float sum(Lanes x) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
SF_INLINE float highest(Lanes x) {
  return _mm512_reduce_max_ps(x.v);
}
// Bit i: lane i is NaN or infinite.
SF_INLINE uint32_t not_finite(Lanes x) {
  const __m512i exponent = _mm512_and_si512(_mm512_castps_si512(x.v), _mm512_set1_epi32(0x7f800000));
  return _mm512_cmpeq_epi32_mask(exponent, _mm512_set1_epi32(0x7f800000));
}
SF_INLINE uint32_t equal(Lanes a, Lanes b) {
  return _mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ);
}

// Lane i of the result is sum(v[i]), by the same tree: halves, quarters, pairs, and the two that are left.
SF_INLINE Lanes sums(const Lanes (&v)[16]) {
  // The shuffles below leave input order[4 l + e] in lane 4 l + e.
  constexpr int kOrder[16] = {0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15};
  __m512 in[16], half[8], quarter[4], pair[2];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) in[kOrder[i]] = v[i].v;
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    half[i] = _mm512_add_ps(_mm512_shuffle_f32x4(in[i], in[i + 8], 0x44), _mm512_shuffle_f32x4(in[i], in[i + 8], 0xee));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    quarter[i] = _mm512_add_ps(_mm512_shuffle_f32x4(half[i], half[i + 4], 0x88),
                               _mm512_shuffle_f32x4(half[i], half[i + 4], 0xdd));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m512d a = _mm512_castps_pd(quarter[i]), b = _mm512_castps_pd(quarter[i + 2]);
    pair[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  return {_mm512_add_ps(_mm512_shuffle_ps(pair[0], pair[1], 0x88), _mm512_shuffle_ps(pair[0], pair[1], 0xdd))};
}

}  // namespace sf::kernels::SF_ISA
