// SPDX-License-Identifier: Apache-2.0
// Gradients of attention for one (batch, key head) at a time: every accumulator has one owner and one order of addends
// (blocks of keys, then query rows, then query heads), so threads do not change bits.
#include "attention_tile.h"
#include "functions.h"
#include "sf_kernels/attention.h"

namespace sf::kernels::SF_ISA {

namespace {

struct Row {
  const float* q;
  const float* g;
  float* dq;
  size_t low, high, row;
  float lse, delta;  // delta: g . out
};

Row describe(const Attention& op, const AttentionGradient& a, size_t batch, size_t kv_head, size_t index) {
  const size_t group = op.heads / op.kv_heads, head = kv_head * group + index % group;
  Row r;
  r.row = index / group;
  const size_t flat = (batch * op.heads + head) * op.rows + r.row;
  r.q = op.q.data + batch * op.q.batch + head * op.q.head + r.row * op.q.row;
  r.g = a.g.data + batch * a.g.batch + head * a.g.head + r.row * a.g.row;
  r.dq = a.dq + flat * op.dims;
  r.low = static_cast<size_t>(op.low[batch * op.rows + r.row]);
  r.high = static_cast<size_t>(op.high[batch * op.rows + r.row]);
  r.lse = a.lse[flat];
  const float* out = a.out.data + batch * a.out.batch + head * a.out.head + r.row * a.out.row;
  Lanes dot = splat(0.0f);
  for (size_t d = 0; d < op.dims; d += kLanes) dot = fma(load(r.g + d), load(out + d), dot);
  r.delta = sum(dot);
  return r;
}

// Scores in p and g . v in ds -> weights in p, gradients of the raw products in ds.
void derive(const Row& row, float scale, size_t groups, float* p, float* ds) {
  for (size_t g = 0; g < groups; ++g) {
    const Lanes weight = exp(load(p + g * kLanes) - splat(row.lse));
    store(p + g * kLanes, weight);
    store(ds + g * kLanes, weight * (load(ds + g * kLanes) - splat(row.delta)) * splat(scale));
  }
}

struct Block {
  const float* k;
  const float* v;
  float* dk;
  float* dv;
  size_t start;
};

template <size_t R>
void add(const Attention& op, const Block& b, Row* const* rows, const float (*p)[kKeyBlock],
         const float (*ds)[kKeyBlock], Visible see) {
  const float* q[R];
  const float* g[R];
  float* dq[R];
  float one[R];
  for (size_t r = 0; r < R; ++r) q[r] = rows[r]->q, g[r] = rows[r]->g, dq[r] = rows[r]->dq, one[r] = 1;
  spread<R>(b.dv, p, see.begin, see.end, g, op.dims);
  spread<R>(b.dk, ds, see.begin, see.end, q, op.dims);
  weigh<R>(dq, one, ds, see.begin, see.end, b.k, op.k.row, op.dims);
}

void tile(const Attention& op, const Block& b, Row* rows, size_t count) {
  alignas(64) float p[kTile][kKeyBlock], ds[kTile][kKeyBlock];
  Visible see[kTile];
  Row* pointers[kTile];
  bool full = count == kTile;
  for (size_t r = 0; r < count; ++r) {
    pointers[r] = rows + r;
    see[r] = visible(rows[r].low, rows[r].high, b.start);
    full = full && see[r].begin == 0 && see[r].end == kKeyBlock;
    if (see[r].begin >= see[r].end) continue;
    const size_t groups = scores(rows[r].q, b.k, op.k.row, see[r].end, op.dims, op.scale, p[r]);
    scores(rows[r].g, b.v, op.v.row, see[r].end, op.dims, 1.0f, ds[r]);
    derive(rows[r], op.scale, groups, p[r], ds[r]);
  }
  if (full) {
    add<kTile>(op, b, pointers, p, ds, {0, kKeyBlock});
    return;
  }
  for (size_t r = 0; r < count; ++r) {
    if (see[r].begin < see[r].end) add<1>(op, b, pointers + r, p + r, ds + r, see[r]);
  }
}

void clear(float* p, size_t n) {
  for (size_t i = 0; i < n; ++i) p[i] = 0;
}

// The row's own keys: weights and gradients of up to 16 diagonals at a time.
void diagonals(const Attention& op, const AttentionGradient& a, size_t batch, size_t kv_head, Row& row) {
  const size_t at = ((batch * op.kv_heads + kv_head) * op.rows + row.row) * op.dims;
  for (size_t first = 0; first < op.diagonals; first += kLanes) {
    const size_t n = op.diagonals - first < kLanes ? op.diagonals - first : kLanes;
    const float* keys[kLanes];
    const float* values[kLanes];
    for (size_t i = 0; i < kLanes; ++i) {
      keys[i] = op.k_diagonal[first + (i < n ? i : n - 1)] + at;
      values[i] = op.v_diagonal[first + (i < n ? i : n - 1)] + at;
    }
    alignas(64) float p[kLanes], ds[kLanes];
    store(p, dots(row.q, keys, op.dims) * splat(op.scale));
    store(ds, dots(row.g, values, op.dims));
    derive(row, op.scale, 1, p, ds);
    for (size_t i = 0; i < n; ++i) {
      float* dk = a.dk_diagonal[first + i] + at;
      float* dv = a.dv_diagonal[first + i] + at;
      for (size_t d = 0; d < op.dims; d += kLanes) {
        store(dv + d, fma(splat(p[i]), load(row.g + d), load(dv + d)));
        store(dk + d, fma(splat(ds[i]), load(row.q + d), load(dk + d)));
        store(row.dq + d, fma(splat(ds[i]), load(keys[i] + d), load(row.dq + d)));
      }
    }
  }
}

void head(const Attention& op, const AttentionGradient& a, size_t batch, size_t kv_head, Row* rows) {
  const size_t list = op.rows * (op.heads / op.kv_heads), flat = batch * op.kv_heads + kv_head;
  float* dk = a.dk + flat * a.keys * op.dims;
  float* dv = a.dv + flat * a.keys * op.dims;
  clear(dk, a.keys * op.dims);
  clear(dv, a.keys * op.dims);
  for (size_t i = 0; i < op.diagonals; ++i) {
    clear(a.dk_diagonal[i] + flat * op.rows * op.dims, op.rows * op.dims);
    clear(a.dv_diagonal[i] + flat * op.rows * op.dims, op.rows * op.dims);
  }
  const float* k = static_cast<const float*>(op.k.data) + batch * op.k.batch + kv_head * op.k.head;
  const float* v = static_cast<const float*>(op.v.data) + batch * op.v.batch + kv_head * op.v.head;
  for (size_t i = 0; i < list; ++i) {
    rows[i] = describe(op, a, batch, kv_head, i);
    clear(rows[i].dq, op.dims);
  }
  for (size_t start = 0; start < a.keys; start += kKeyBlock) {
    const Block b{k + start * op.k.row, v + start * op.v.row, dk + start * op.dims, dv + start * op.dims, start};
    for (size_t first = 0; first < list; first += kTile) {
      const size_t count = list - first < kTile ? list - first : kTile;
      bool any = false;
      for (size_t r = first; r < first + count; ++r)
        any = any || (rows[r].high > start && rows[r].low < start + kKeyBlock);
      if (any) tile(op, b, rows + first, count);
    }
  }
  for (size_t i = 0; i < list && op.diagonals > 0; ++i) diagonals(op, a, batch, kv_head, rows[i]);
}

}  // namespace

size_t attention_scratch(const Attention& op) {
  return op.rows * (op.heads / op.kv_heads) * sizeof(Row);
}

void attention_backward(const Attention& op, const AttentionGradient& gradient, void* scratch, size_t begin,
                        size_t end) {
  for (size_t unit = begin; unit < end; ++unit) {
    head(op, gradient, unit / op.kv_heads, unit % op.kv_heads, static_cast<Row*>(scratch));
  }
}

}  // namespace sf::kernels::SF_ISA
