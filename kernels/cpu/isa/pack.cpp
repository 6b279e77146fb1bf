// SPDX-License-Identifier: Apache-2.0
// Operands of the packed product. Copies only: no arithmetic, so the order of the work is free.
#include "functions.h"
#include "lanes.h"

namespace sf::kernels::SF_ISA {

namespace {

#if defined(__AVX512F__)
// rows[r][c] -> rows[c][r].
SF_INLINE void transpose(__m512i (&rows)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    rows[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    rows[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    rows[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    rows[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(rows[i], rows[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_i32x4(rows[i], rows[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_i32x4(rows[8 + i], rows[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_i32x4(rows[8 + i], rows[12 + i], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
    rows[4 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0x88);
    rows[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd);
    rows[12 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0xdd);
  }
}
#endif

// to[c * width + r] = from[r * stride + c] for r < rows, zero for rows <= r < width; 32-bit elements. width <= 16.
void columns(const uint32_t* from, size_t stride, size_t rows, size_t count, size_t width, uint32_t* to) {
  size_t c = 0;
#if defined(__AVX512F__)
  for (; c + 16 <= count; c += 16) {
    __m512i block[16];
#pragma GCC unroll 16
    for (size_t r = 0; r < 16; ++r) {
      block[r] = r < rows ? _mm512_loadu_si512(from + r * stride + c) : _mm512_setzero_si512();
    }
    transpose(block);
    const bool last = c + 16 == count;
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; ++i) {
      if (last)
        _mm512_mask_storeu_epi32(to + (c + i) * width, first(width), block[i]);
      else
        _mm512_storeu_si512(to + (c + i) * width, block[i]);  // the next column overwrites what is too much
    }
  }
#endif
  for (; c < count; ++c) {
    for (size_t r = 0; r < width; ++r) to[c * width + r] = r < rows ? from[r * stride + c] : 0;
  }
}

uint32_t pair(uint16_t low, uint16_t high) {
  return low | static_cast<uint32_t>(high) << 16;
}

#if defined(__AVX512F__)
// The same for a matrix whose rows lie side by side.
void pairs_across(const uint16_t* low, size_t column, size_t rows, size_t count, size_t width, uint32_t* to) {
  const Mask in = first(rows), out = first(width);
  for (size_t i = 0; i < count; ++i, low += 2 * column, to += width) {
    const __m512i a = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(in, low));
    const __m512i b = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(in, low + column));
    _mm512_mask_storeu_epi32(to, out, _mm512_or_si512(a, _mm512_slli_epi32(b, 16)));
  }
}
#endif

// to[i * width + r] = the pair (2 i, 2 i + 1) of row r.
void pairs(Matrix<const uint16_t> m, size_t rows, size_t k, size_t width, uint32_t* to) {
  const size_t whole = k / 2;
  if (m.column == 1 && m.row % 2 == 0) {
    columns(reinterpret_cast<const uint32_t*>(m.data), m.row / 2, rows, whole, width, to);
#if defined(__AVX512F__)
  } else if (m.row == 1) {
    pairs_across(m.data, m.column, rows, whole, width, to);
#endif
  } else {
    for (size_t i = 0; i < whole; ++i) {
      const uint16_t* low = m.data + 2 * i * m.column;
      const uint16_t* high = low + m.column;
      for (size_t r = 0; r < rows; ++r) to[i * width + r] = pair(low[r * m.row], high[r * m.row]);
      for (size_t r = rows; r < width; ++r) to[i * width + r] = 0;
    }
  }
  if (k % 2 == 0) return;
  for (size_t r = 0; r < width; ++r) {
    to[whole * width + r] = r < rows ? pair(m.data[r * m.row + (k - 1) * m.column], 0) : 0;
  }
}

void singles(Matrix<const float> m, size_t rows, size_t k, size_t width, float* to) {
  if (m.column == 1) {
    columns(reinterpret_cast<const uint32_t*>(m.data), m.row, rows, k, width, reinterpret_cast<uint32_t*>(to));
    return;
  }
  for (size_t t = 0; t < k; ++t) {
    const float* from = m.data + t * m.column;
    if (m.row == 1) {
      if (rows == kPanel)
        store(to + t * width, load(from));
      else
        store(to + t * width, load(from, rows), width);
      continue;
    }
    for (size_t r = 0; r < rows; ++r) to[t * width + r] = from[r * m.row];
    for (size_t r = rows; r < width; ++r) to[t * width + r] = 0;
  }
}

}  // namespace

void pack_rows_f32(Matrix<const float> x, size_t k, RowTiles tiles, float* out) {
  for (size_t t = 0; t < tiles.tiles; ++t) {
    const size_t row = tiles.start(t), rows = tiles.size(t);
    singles({x.data + row * x.row, x.row, x.column}, rows, k, rows, out + row * k);
  }
}

void pack_rows_bf16(Matrix<const uint16_t> x, size_t k, RowTiles tiles, uint32_t* out) {
  for (size_t t = 0; t < tiles.tiles; ++t) {
    const size_t row = tiles.start(t), rows = tiles.size(t);
    pairs({x.data + row * x.row, x.row, x.column}, rows, k, rows, out + row * ((k + 1) / 2));
  }
}

void pack_panels_f32(Matrix<const float> w, size_t n, size_t k, size_t begin, size_t end, float* packed) {
  for (size_t panel = begin; panel < end; ++panel) {
    const size_t row = panel * kPanel, rows = n - row < kPanel ? n - row : kPanel;
    singles({w.data + row * w.row, w.row, w.column}, rows, k, kPanel, packed + row * k);
  }
}

void pack_panels_bf16(Matrix<const uint16_t> w, size_t n, size_t k, size_t begin, size_t end, uint16_t* packed) {
  auto* to = reinterpret_cast<uint32_t*>(packed);
  for (size_t panel = begin; panel < end; ++panel) {
    const size_t row = panel * kPanel, rows = n - row < kPanel ? n - row : kPanel;
    pairs({w.data + row * w.row, w.row, w.column}, rows, k, kPanel, to + row * ((k + 1) / 2));
  }
}

}  // namespace sf::kernels::SF_ISA
