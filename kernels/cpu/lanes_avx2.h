// SPDX-License-Identifier: Apache-2.0
// Part of lanes.h: AVX2 with FMA.
#pragma once

namespace sf::kernels::SF_ISA {

struct Lanes {
  __m256 a, b;
};

SF_INLINE Lanes splat(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
SF_INLINE Lanes load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
SF_INLINE void store(float* p, Lanes x) {
  _mm256_storeu_ps(p, x.a), _mm256_storeu_ps(p + 8, x.b);
}
SF_INLINE Lanes load(const float* p, size_t n) {
  alignas(32) float buffer[kLanes] = {};
  for (size_t i = 0; i < n; ++i) buffer[i] = p[i];
  return load(buffer);
}
SF_INLINE void store(float* p, Lanes x, size_t n) {
  alignas(32) float buffer[kLanes];
  store(buffer, x);
  for (size_t i = 0; i < n; ++i) p[i] = buffer[i];
}
SF_INLINE Lanes operator+(Lanes x, Lanes y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
SF_INLINE Lanes operator-(Lanes x, Lanes y) {
  return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
SF_INLINE Lanes operator*(Lanes x, Lanes y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
SF_INLINE Lanes operator/(Lanes x, Lanes y) {
  return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
SF_INLINE Lanes fma(Lanes x, Lanes y, Lanes z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
SF_INLINE Lanes max(Lanes x, Lanes y) {
  return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
SF_INLINE Lanes min(Lanes x, Lanes y) {
  return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
SF_INLINE Lanes sqrt(Lanes x) {
  return {_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)};
}
SF_INLINE Lanes rint(Lanes x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, kNearest), _mm256_round_ps(x.b, kNearest)};
}
SF_INLINE __m256 power(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
// In two steps: 2^n itself may be no fp32 number.
SF_INLINE __m256 times_power(__m256 p, __m256 n) {
  const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
  return _mm256_mul_ps(_mm256_mul_ps(p, power(half)), power(_mm256_sub_epi32(whole, half)));
}
SF_INLINE Lanes times_power(Lanes p, Lanes n) {
  return {times_power(p.a, n.a), times_power(p.b, n.b)};
}
SF_INLINE Lanes where_below(Lanes x, Lanes y, Lanes yes, Lanes no) {
  return {_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ))};
}
SF_INLINE __m256 widen(__m128i half) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
SF_INLINE Lanes load_bf16(const uint16_t* p) {
  return {widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
SF_INLINE __m256i to_bf16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i even = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff)));
  const __m256 quiet = _mm256_or_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x400000)));
  const __m256 chosen = _mm256_blendv_ps(_mm256_castsi256_ps(up), quiet, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_castps_si256(chosen), 16);
}
SF_INLINE void store_bf16(uint16_t* p, Lanes x) {
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(to_bf16(x.a), to_bf16(x.b)), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), packed);
}
SF_INLINE float sum(Lanes x) {
  const __m256 half = _mm256_add_ps(x.a, x.b);
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
SF_INLINE float highest(Lanes x) {
  alignas(32) float buffer[kLanes];
  store(buffer, x);
  float top = buffer[0];
  for (size_t i = 1; i < kLanes; ++i) top = top > buffer[i] ? top : buffer[i];
  return top;
}
SF_INLINE uint32_t not_finite(__m256 x) {
  const __m256i infinity = _mm256_set1_epi32(0x7f800000);
  const __m256i hit = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_castps_si256(x), infinity), infinity);
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(hit)));
}
SF_INLINE uint32_t not_finite(Lanes x) {
  return not_finite(x.a) | not_finite(x.b) << 8;
}
SF_INLINE uint32_t equal(Lanes x, Lanes y) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_EQ_OQ))) |
         static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_EQ_OQ))) << 8;
}

SF_INLINE __m256 quarters(__m256 low, __m256 high) {
  return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
}
SF_INLINE __m256 pairs(__m256 a, __m256 b) {
  const __m256d x = _mm256_castps_pd(a), y = _mm256_castps_pd(b);
  return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)), _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
}
SF_INLINE __m256 sums8(const Lanes* v) {
  __m256 half[8];
  for (int i = 0; i < 8; ++i) half[i] = _mm256_add_ps(v[i].a, v[i].b);
  const __m256 a = pairs(quarters(half[0], half[4]), quarters(half[1], half[5]));
  const __m256 b = pairs(quarters(half[2], half[6]), quarters(half[3], half[7]));
  return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}
// Lane i of the result is sum(v[i]), by the same tree.
SF_INLINE Lanes sums(const Lanes (&v)[16]) {
  return {sums8(v), sums8(v + 8)};
}

}  // namespace sf::kernels::SF_ISA
