// SPDX-License-Identifier: Apache-2.0
#include "model/indexed_attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/fault.h"
#include "model/slices.h"
#include "ops/rope.h"
#include "tensor/device.h"

namespace sf::model {
namespace {

// [B, S, n * dim] normed and turned: [B, n, S, dim].
at::Tensor turned(const at::Tensor& heads, const Rotary::Turns& turns) {
  return ops::apply_rotary(heads.transpose(1, 2), turns.table, turns.rows);
}

// Keys of the complete blocks of tokens [begin, end) of one row: [blocks, dim].
at::Tensor block_keys(const arch::Decoder& d, const Given& given, const at::Tensor& raw, TokenRange range,
                      const Rotary::Turns& turns, int64_t row) {
  const int64_t ratio = d.indexer.ratio, blocks = (range.end - range.begin) / ratio;
  at::Tensor mean =
      raw[row].narrow(0, range.begin, blocks * ratio).unflatten(0, {blocks, ratio}).to(at::kFloat).mean(1);
  at::Tensor normed = norm(d, mean.to(raw.scalar_type()), given.weight("self_attn.indexer.k_layernorm"));
  const at::Tensor all = turns.rows.dim() == 2 ? turns.rows[row] : turns.rows;
  const at::Tensor at = all.slice(0, range.begin, range.begin + blocks * ratio, ratio).contiguous();
  return ops::apply_rotary(normed, turns.table, at);
}

// The best `most` of the first `count` scores; the lower index wins a tie.
std::vector<int64_t> best(const float* scores, int64_t count, int64_t most) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  if (count <= most) return order;
  const auto before = [&](int64_t a, int64_t b) {
    return scores[a] > scores[b] || (scores[a] == scores[b] && (fault("model.highest_block") ? a > b : a < b));
  };
  std::nth_element(order.begin(), order.begin() + most, order.end(), before);
  order.resize(static_cast<size_t>(most));
  return order;
}

// What query `at` of a row keeps, of its tokens [range.begin, at].
void keep(const arch::Indexer& indexer, const float* scores, TokenRange range, int64_t at, bool* kept) {
  const int64_t seen = at + 1 - range.begin, blocks = seen / indexer.ratio;
  for (int64_t block : best(scores, blocks, indexer.budget / indexer.ratio))
    std::fill_n(kept + range.begin + block * indexer.ratio, indexer.ratio, true);
  std::fill(kept + range.begin + blocks * indexer.ratio, kept + at + 1, true);
}

}  // namespace

std::vector<TokenRange> token_ranges(const at::Tensor* mask, int64_t batch, int64_t length) {
  std::vector<TokenRange> ranges(static_cast<size_t>(batch), {0, length});
  if (!mask) return ranges;
  const at::Tensor token = tensor::on_host(*mask).ne(0).contiguous();
  for (int64_t b = 0; b < batch; ++b) {
    const bool* row = token.const_data_ptr<bool>() + b * length;
    TokenRange& range = ranges[static_cast<size_t>(b)];
    range.begin = std::find(row, row + length, true) - row;
    if (range.begin == length) range.begin = 0;
    range.end = std::find(row + range.begin, row + length, false) - row;
    SF_CHECK(std::find(row + range.end, row + length, true) == row + length, Exit::kData,
             "attention_mask has a gap: the tokens of a row must be one run, with padding before or after it");
  }
  return ranges;
}

int64_t dense_rows(const arch::Indexer& indexer, const std::vector<TokenRange>& ranges, int64_t length) {
  if (indexer.heads == 0) return length;
  int64_t rows = length;
  for (const TokenRange& range : ranges)
    if (const int64_t most = range.begin + indexer.budget + indexer.ratio - 1; most < range.end)
      rows = std::min(rows, most);
  return rows;
}

at::Tensor indexed_keys(const arch::Decoder& d, const Given& given, const at::Tensor& x, const Rotary::Turns& turns,
                        int64_t first) {
  c10::NoGradGuard no_gradients;
  const arch::Indexer& indexer = d.indexer;
  const int64_t batch = x.size(0), length = x.size(1);
  const at::Tensor both = given.project(x, "self_attn.indexer.index_qk_proj");
  const at::Tensor raw = both.narrow(-1, indexer.heads * indexer.dim, indexer.dim);
  at::Tensor queries = both.narrow(-1, 0, indexer.heads * indexer.dim).unflatten(-1, {indexer.heads, indexer.dim});
  queries =
      turned(norm(d, queries, given.weight("self_attn.indexer.q_layernorm")), turns).narrow(2, first, length - first);
  const std::vector<TokenRange> ranges = token_ranges(given.mask(), batch, length);
  at::Tensor kept = at::zeros({batch, length - first, length}, at::kBool);
  for (int64_t b = 0; b < batch; ++b) {
    const TokenRange range = ranges[static_cast<size_t>(b)];
    at::Tensor scores;
    if (range.end - range.begin >= indexer.ratio) {
      const at::Tensor keys = block_keys(d, given, raw, range, turns, b).to(at::kFloat);
      const at::Tensor each = at::relu(at::matmul(queries[b].to(at::kFloat), keys.t()));  // [heads, rows, blocks]
      scores = tensor::on_host(each.sum(0).div(std::sqrt(static_cast<double>(indexer.dim)))).contiguous();
    }
    for (int64_t row = std::max(first, range.begin); row < range.end; ++row)
      keep(indexer, scores.defined() ? scores.const_data_ptr<float>() + (row - first) * scores.size(1) : nullptr, range,
           row, kept.mutable_data_ptr<bool>() + (b * (length - first) + row - first) * length);
  }
  return kept;
}

at::Tensor attend_kept(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& kept) {
  constexpr double kInvisible = -1e30;  // finite: a row of padding has no NaN in it or in its gradient
  const int64_t group = q.size(1) / k.size(1), batch = q.size(0), heads = q.size(1), dims = q.size(3);
  const double scale = 1 / std::sqrt(static_cast<double>(dims));
  auto attend = [=](const std::vector<at::Tensor>& rows, const std::vector<at::Tensor>& whole) {
    // [R, B, nH, hd] -> [B, nKV, group * R, hd], so that keys are not repeated.
    const int64_t count = rows[0].size(0), kv = heads / group;
    at::Tensor query = rows[0].permute({1, 2, 0, 3}).reshape({batch, kv, group * count, dims}).to(at::kFloat);
    at::Tensor scores = at::matmul(query, whole[0].to(at::kFloat).transpose(-1, -2)).mul(scale);
    at::Tensor seen = tensor::beside(rows[1], scores).permute({1, 0, 2}).unsqueeze(1).repeat({1, 1, group, 1});
    at::Tensor weight = at::softmax(scores.masked_fill(seen.logical_not(), kInvisible), -1).mul(seen);
    at::Tensor out = at::matmul(weight, whole[1].to(at::kFloat)).reshape({batch, heads, count, dims});
    return std::vector<at::Tensor>{out.permute({2, 0, 1, 3}).to(rows[0].scalar_type())};
  };
  const int64_t row_bytes = batch * heads * k.size(2) * 4;
  const int64_t slice = std::max<int64_t>(1, kSliceBytes / std::max<int64_t>(row_bytes, 1));
  return in_slices({q.permute({2, 0, 1, 3}), kept.permute({1, 0, 2})}, {k, v}, slice, attend)[0].permute({1, 2, 0, 3});
}

}  // namespace sf::model
