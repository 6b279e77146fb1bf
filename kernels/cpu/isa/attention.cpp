// SPDX-License-Identifier: Apache-2.0
// Query rows go through the keys in tiles of kTile rows that share loads. Each row still does exactly what it would do
// alone: blocks of kKeyBlock keys in order, keys in order inside a block.
#include "sf_kernels/attention.h"

#include "attention_tile.h"
#include "functions.h"

namespace sf::kernels::SF_ISA {

namespace {

// One query row on its way through the keys.
struct Row {
  const float* q;
  float* out;
  size_t low, high;  // keys seen
  size_t batch, head, row;
  float top, total;  // running maximum and sum
  float* sum;        // [dims], not yet divided
};

Row describe(const Attention& op, size_t batch, size_t kv_head, size_t index, Heads<float> out) {
  const size_t group = op.heads / op.kv_heads;
  Row r;
  r.batch = batch, r.row = index / group, r.head = kv_head * group + index % group;
  r.q = op.q.data + batch * op.q.batch + r.head * op.q.head + r.row * op.q.row;
  r.out = out.data + batch * out.batch + r.head * out.head + r.row * out.row;
  r.low = static_cast<size_t>(op.low[batch * op.rows + r.row]);
  r.high = static_cast<size_t>(op.high[batch * op.rows + r.row]);
  r.top = -__builtin_inff(), r.total = 0;
  return r;
}

// Scores of one block in p -> weights relative to the new maximum; returns the factor for what was summed before.
float soften(Row& row, float* p, size_t groups) {
  Lanes most = load(p);
  for (size_t g = 1; g < groups; ++g) most = max(load(p + g * kLanes), most);
  const float block_top = highest(most), top = row.top > block_top ? row.top : block_top;
  Lanes total = splat(0.0f);
  for (size_t g = 0; g < groups; ++g) {
    const Lanes weight = exp(load(p + g * kLanes) - splat(top));
    store(p + g * kLanes, weight);
    total = total + weight;
  }
  float factor[kLanes];
  store(factor, exp(splat(row.top) - splat(top)));
  row.total = row.total * factor[0] + sum(total);
  row.top = top;
  return factor[0];
}

template <typename T>
void block(const Attention& op, Row* rows, size_t count, const T* k, const T* v, size_t start) {
  alignas(64) float p[kTile][kKeyBlock];
  float factor[kTile];
  bool full = count == kTile;
  for (size_t r = 0; r < count; ++r) {
    const Visible see = visible(rows[r].low, rows[r].high, start);
    full = full && see.begin == 0 && see.end == kKeyBlock;
    if (see.begin >= see.end) continue;
    const size_t groups = scores(rows[r].q, k, op.k.row, see.end, op.dims, op.scale, p[r]);
    hide(p[r], see, groups);
    factor[r] = soften(rows[r], p[r], groups);
  }
  if (full) {
    float* to[kTile];
    for (size_t r = 0; r < kTile; ++r) to[r] = rows[r].sum;
    weigh<kTile>(to, factor, p, 0, kKeyBlock, v, op.v.row, op.dims);
    return;
  }
  for (size_t r = 0; r < count; ++r) {
    const Visible see = visible(rows[r].low, rows[r].high, start);
    if (see.begin < see.end) weigh<1>(&rows[r].sum, &factor[r], &p[r], see.begin, see.end, v, op.v.row, op.dims);
  }
}

void diagonals(const Attention& op, Row& row) {
  const size_t group = op.heads / op.kv_heads;
  const size_t at = ((row.batch * op.kv_heads + row.head / group) * op.rows + row.row) * op.dims;
  for (size_t first = 0; first < op.diagonals; first += kLanes) {
    const size_t n = op.diagonals - first < kLanes ? op.diagonals - first : kLanes;
    alignas(64) float p[1][kKeyBlock];
    const float* keys[kLanes];
    for (size_t i = 0; i < kLanes; ++i) keys[i] = op.k_diagonal[first + (i < n ? i : n - 1)] + at;
    store(p[0], dots(row.q, keys, op.dims) * splat(op.scale));
    hide(p[0], {0, n}, 1);
    float factor = soften(row, p[0], 1);
    for (size_t i = 0; i < n; ++i) {
      weigh<1>(&row.sum, &factor, p, i, i + 1, op.v_diagonal[first + i] + at - i * op.dims, op.dims, op.dims);
      factor = 1;
    }
  }
}

void finish(const Attention& op, const Row& row, float* lse) {
  for (size_t i = 0; i < op.dims; i += kLanes) {
    store(row.out + i, row.total > 0 ? load(row.sum + i) / splat(row.total) : splat(0.0f) * load(row.sum + i));
  }
  if (!lse) return;
  lse[(row.batch * op.heads + row.head) * op.rows + row.row] =
      row.top + static_cast<float>(__builtin_log(static_cast<double>(row.total)));
}

template <typename T>
void tiles(const Attention& op, Heads<float> out, float* lse, size_t begin, size_t end) {
  const size_t list = op.rows * (op.heads / op.kv_heads), per_head = (list + kTile - 1) / kTile;
  alignas(64) float sum[kTile * kMostDims];
  for (size_t unit = begin; unit < end; ++unit) {
    const size_t tile = unit % per_head, kv_head = unit / per_head % op.kv_heads, batch = unit / per_head / op.kv_heads;
    const size_t first = tile * kTile, count = list - first < kTile ? list - first : kTile;
    const T* k = static_cast<const T*>(op.k.data) + batch * op.k.batch + kv_head * op.k.head;
    const T* v = static_cast<const T*>(op.v.data) + batch * op.v.batch + kv_head * op.v.head;
    Row rows[kTile];
    size_t low = ~size_t{0}, high = 0;
    for (size_t r = 0; r < count; ++r) {
      rows[r] = describe(op, batch, kv_head, first + r, out);
      rows[r].sum = sum + r * op.dims;
      for (size_t i = 0; i < op.dims; ++i) rows[r].sum[i] = 0;
      low = rows[r].low < low ? rows[r].low : low;
      high = rows[r].high > high ? rows[r].high : high;
    }
    for (size_t start = low / kKeyBlock * kKeyBlock; start < high; start += kKeyBlock) {
      block(op, rows, count, k + start * op.k.row, v + start * op.v.row, start);
    }
    for (size_t r = 0; r < count; ++r) {
      if (op.diagonals > 0) diagonals(op, rows[r]);
      finish(op, rows[r], lse);
    }
  }
}

}  // namespace

void attention(const Attention& op, Heads<float> out, float* lse, size_t begin, size_t end) {
  if (op.kv_type == Type::kF32)
    tiles<float>(op, out, lse, begin, end);
  else
    tiles<uint16_t>(op, out, lse, begin, end);
}

}  // namespace sf::kernels::SF_ISA
