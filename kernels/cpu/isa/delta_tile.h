// SPDX-License-Identifier: Apache-2.0
// What the gated delta rule and its gradient share: small products, the rows of a chunk, and what a chunk's tokens do
// to each other. Rows in scratch are filled up with zeros to whole lanes: zeros add nothing.
#pragma once
#include "functions.h"
#include "lanes.h"
#include "sf_kernels/delta.h"
#include "spans.h"

namespace sf::kernels::SF_ISA {

constexpr size_t kChunk = kDeltaChunk;

SF_INLINE size_t whole(size_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

// A operand of a product, by strides.
struct Left {
  const float* data;
  size_t row, column;
};

template <size_t R, size_t P>
SF_INLINE void product_tile(Left a, const float* b, size_t b_row, float* c, size_t c_row, size_t k, bool add) {
  Lanes sum[R][P];
  for (size_t r = 0; r < R; ++r)
    for (size_t p = 0; p < P; ++p) sum[r][p] = add ? load(c + r * c_row + p * kLanes) : splat(0.0f);
  for (size_t i = 0; i < k; ++i) {
    Lanes right[P];
    for (size_t p = 0; p < P; ++p) right[p] = load(b + i * b_row + p * kLanes);
    for (size_t r = 0; r < R; ++r) {
      const Lanes left = splat(a.data[r * a.row + i * a.column]);
      for (size_t p = 0; p < P; ++p) sum[r][p] = fma(left, right[p], sum[r][p]);
    }
  }
  for (size_t r = 0; r < R; ++r)
    for (size_t p = 0; p < P; ++p) store(c + r * c_row + p * kLanes, sum[r][p]);
}

template <size_t P>
SF_INLINE void product_columns(size_t m, Left a, const float* b, size_t b_row, float* c, size_t c_row, size_t k,
                               bool add) {
#if defined(__AVX512F__)
  constexpr size_t kRows = 8;
#else
  constexpr size_t kRows = 4;
#endif
  size_t r = 0;
  for (; r + kRows <= m; r += kRows)
    product_tile<kRows, P>({a.data + r * a.row, a.row, a.column}, b, b_row, c + r * c_row, c_row, k, add);
  for (; r < m; ++r) product_tile<1, P>({a.data + r * a.row, a.row, a.column}, b, b_row, c + r * c_row, c_row, k, add);
}

// c [m, n] = a [m, k] b [k, n], or c += it; n in whole lanes. One chain of fma an element, k ascending.
static inline void product(size_t m, size_t n, size_t k, Left a, const float* b, size_t b_row, float* c, size_t c_row,
                           bool add) {
#if defined(__AVX512F__)
  constexpr size_t kPanels = 2;
#else
  constexpr size_t kPanels = 1;
#endif
  size_t j = 0;
  for (; j + kPanels * kLanes <= n; j += kPanels * kLanes)
    product_columns<kPanels>(m, a, b + j, b_row, c + j, c_row, k, add);
  for (; j < n; j += kLanes) product_columns<1>(m, a, b + j, b_row, c + j, c_row, k, add);
}

// to[j * rows' + i] = from[i * columns' + j]; both extents in whole lanes.
static inline void transpose(const float* from, size_t rows, size_t columns, float* to) {
  for (size_t j = 0; j < columns; ++j)
    for (size_t i = 0; i < rows; ++i) to[j * rows + i] = from[i * columns + j];
}

// Hands out scratch; without memory it only counts.
struct Carver {
  float* at = nullptr;
  size_t total = 0;
  SF_INLINE float* take(Carver& c, size_t floats) {
    float* part = c.at ? c.at + c.total : nullptr;
    c.total += whole(floats);
    return part;
  }
};

// One chunk of a (batch, key head): its keys and queries, and their products.
struct Chunk {
  size_t first, count, padded;  // tokens; padded: in whole lanes
};

SF_INLINE Chunk chunk_at(const Delta& op, size_t index) {
  const size_t first = index * kChunk, count = op.length - first < kChunk ? op.length - first : kChunk;
  return {first, count, whole(count)};
}

// count typed rows of `dim` -> fp32 rows of whole lanes; rows up to `padded` are zero.
template <typename T>
SF_INLINE void load_rows(const T* from, size_t step, Chunk chunk, size_t dim, float* to) {
  const size_t width = whole(dim);
  for (size_t t = 0; t < chunk.count; ++t)
    spans(dim, [&](size_t i, size_t n) { store(to + t * width + i, take(from + t * step + i, n)); });
  for (size_t i = chunk.count * width; i < chunk.padded * width; i += kLanes) store(to + i, splat(0.0f));
}

// Rows to length `scale`; norm[t] = scale / sqrt(x.x + 1e-6), what each was multiplied with.
static inline void normalise(float* rows, size_t count, size_t width, float scale, float* norm) {
  for (size_t t = 0; t < count; ++t) {
    float* row = rows + t * width;
    Lanes squares = splat(0.0f);
    for (size_t i = 0; i < width; i += kLanes) squares = fma(load(row + i), load(row + i), squares);
    norm[t] = scale / __builtin_sqrtf(sum(squares) + 1e-6f);
    for (size_t i = 0; i < width; i += kLanes) store(row + i, load(row + i) * splat(norm[t]));
  }
}

template <typename T>
SF_INLINE const T* row_of(const Delta& op, const void* data, size_t batch, size_t token, size_t offset) {
  return static_cast<const T*>(data) + batch * op.batch_step + token * op.token_step + offset;
}

// fp32 rows of a chunk's q, k or v.
static inline void load_head(const Delta& op, const void* data, size_t batch, size_t head, size_t dim, Chunk chunk,
                             float* to) {
  if (op.type == Type::kF32)
    load_rows(row_of<float>(op, data, batch, chunk.first, head * dim), op.token_step, chunk, dim, to);
  else
    load_rows(row_of<uint16_t>(op, data, batch, chunk.first, head * dim), op.token_step, chunk, dim, to);
}

// What all value heads of a key head share in a chunk: q^ and k^ [count, dk'], k^ transposed, q k^T and k k^T.
struct Keys {
  float *q, *k, *kt, *qk, *kk, *q_norm, *k_norm;
};

SF_INLINE Keys carve_keys(const Delta& op, Carver& c) {
  const size_t dk = whole(op.key_dim);
  Keys keys;
  keys.q = Carver::take(c, kChunk * dk), keys.k = Carver::take(c, kChunk * dk), keys.kt = Carver::take(c, kChunk * dk);
  keys.qk = Carver::take(c, kChunk * kChunk), keys.kk = Carver::take(c, kChunk * kChunk);
  keys.q_norm = Carver::take(c, kChunk), keys.k_norm = Carver::take(c, kChunk);
  return keys;
}

static inline void load_keys(const Delta& op, size_t batch, size_t head, Chunk chunk, const Keys& keys) {
  const size_t dk = whole(op.key_dim);
  load_head(op, op.q, batch, head, op.key_dim, chunk, keys.q);
  load_head(op, op.k, batch, head, op.key_dim, chunk, keys.k);
  normalise(keys.q, chunk.count, dk, 1.0f / __builtin_sqrtf(static_cast<float>(op.key_dim)), keys.q_norm);
  normalise(keys.k, chunk.count, dk, 1.0f, keys.k_norm);
  transpose(keys.k, chunk.padded, dk, keys.kt);
  product(chunk.count, chunk.padded, dk, {keys.q, dk, 1}, keys.kt, chunk.padded, keys.qk, kChunk, false);
  product(chunk.count, chunk.padded, dk, {keys.k, dk, 1}, keys.kt, chunk.padded, keys.kk, kChunk, false);
}

// What a value head does in a chunk. With D[i][j] = e^(G_i - G_j) for j <= i, G the sums of decay from the chunk's
// first token on: mix = q k^T . D (j <= i); link = -beta_i k k^T . D (j < i); grown_i = e^G_i; left_i = e^(G_end -
// G_i). The chunk's corrections d solve d = beta (v - grown K S) + link d.
struct Links {
  float *decay, *mix, *link, *grown, *left, *beta, *sums;
};

SF_INLINE Links carve_links(Carver& c) {
  Links links;
  links.decay = Carver::take(c, kChunk * kChunk), links.mix = Carver::take(c, kChunk * kChunk);
  links.link = Carver::take(c, kChunk * kChunk), links.grown = Carver::take(c, kChunk);
  links.left = Carver::take(c, kChunk), links.beta = Carver::take(c, kChunk), links.sums = Carver::take(c, kChunk);
  return links;
}

static inline void make_links(const Delta& op, size_t batch, size_t head, Chunk chunk, const Keys& keys,
                              const Links& links) {
  const size_t at = (batch * op.length + chunk.first) * op.value_heads + head;
  float total = 0;
  for (size_t t = 0; t < chunk.padded; ++t) {
    if (t < chunk.count) total += op.decay[at + t * op.value_heads];
    links.sums[t] = total;
    links.beta[t] = t < chunk.count ? op.beta[at + t * op.value_heads] : 0.0f;
  }
  float places[kLanes];
  for (size_t i = 0; i < kLanes; ++i) places[i] = static_cast<float>(i);
  const Lanes zero = splat(0.0f), place = load(places);
  for (size_t i = 0; i < chunk.padded; i += kLanes) {
    store(links.grown + i, exp(load(links.sums + i)));
    store(links.left + i, exp(splat(total) - load(links.sums + i)));
  }
  for (size_t i = 0; i < chunk.count; ++i) {
    const Lanes top = splat(links.sums[i]), minus_beta = splat(-links.beta[i]);
    for (size_t j = 0; j < chunk.padded; j += kLanes) {
      const Lanes column = place + splat(static_cast<float>(j)), row = splat(static_cast<float>(i));
      const Lanes d = where_below(column, row + splat(0.5f), exp(min(zero, top - load(links.sums + j))), zero);
      store(links.decay + i * kChunk + j, d);
      store(links.mix + i * kChunk + j, load(keys.qk + i * kChunk + j) * d);
      const Lanes below = where_below(column, row, d, zero);
      store(links.link + i * kChunk + j, minus_beta * (load(keys.kk + i * kChunk + j) * below));
    }
  }
}

// x_i += sum over j < i of link[i][j] x_j, in place, i ascending; rows of `width`.
static inline void solve(const float* link, size_t count, float* x, size_t width) {
  for (size_t block = 0; block < count; block += kLanes) {
    const size_t rows = count - block < kLanes ? count - block : kLanes;
    if (block > 0)
      product(rows, width, block, {link + block * kChunk, kChunk, 1}, x, width, x + block * width, width, true);
    for (size_t i = block + 1; i < block + rows; ++i)
      product(1, width, i - block, {link + i * kChunk + block, kChunk, 1}, x + block * width, width, x + i * width,
              width, true);
  }
}

// The other way: x_i += sum over j > i of link[j][i] x_j, i descending.
static inline void solve_transposed(const float* link, size_t count, float* x, size_t width) {
  const size_t blocks = (count + kLanes - 1) / kLanes;
  for (size_t b = blocks; b-- > 0;) {
    const size_t block = b * kLanes, end = count - block < kLanes ? count : block + kLanes;
    if (end < count)
      product(end - block, width, count - end, {link + end * kChunk + block, 1, kChunk}, x + end * width, width,
              x + block * width, width, true);
    for (size_t i = end - 1; i-- > block;)
      product(1, width, end - 1 - i, {link + (i + 1) * kChunk + i, 1, kChunk}, x + (i + 1) * width, width,
              x + i * width, width, true);
  }
}

SF_INLINE void scale_rows(const float* from, const float* by, size_t count, size_t width, float* to) {
  for (size_t t = 0; t < count; ++t)
    for (size_t i = 0; i < width; i += kLanes) store(to + t * width + i, load(from + t * width + i) * splat(by[t]));
}

// States in memory are [key_dim, value_dim]; in scratch their rows are in whole lanes.
SF_INLINE void load_state(const Delta& op, const float* from, float* to) {
  const size_t width = whole(op.value_dim);
  for (size_t i = 0; i < op.key_dim; ++i)
    spans(op.value_dim, [&](size_t j, size_t n) { store(to + i * width + j, take(from + i * op.value_dim + j, n)); });
  for (size_t i = op.key_dim * width; i < whole(op.key_dim) * width; i += kLanes) store(to + i, splat(0.0f));
}
SF_INLINE void keep_state(const Delta& op, const float* from, float* to) {
  const size_t width = whole(op.value_dim);
  for (size_t i = 0; i < op.key_dim; ++i)
    spans(op.value_dim, [&](size_t j, size_t n) { give(to + i * op.value_dim + j, load(from + i * width + j), n); });
}

}  // namespace sf::kernels::SF_ISA
