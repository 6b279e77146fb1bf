// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include <cmath>

#include "base/error.h"

namespace sf::ops {

namespace {

at::Tensor visible(int64_t s, const AttentionOptions& options) {
  const at::Tensor index = at::arange(s, at::kLong), i = index.unsqueeze(1), j = index.unsqueeze(0);
  at::Tensor seen = j <= i;
  if (options.window > 0) seen = seen.logical_and(i - j < options.window);
  seen = seen.unsqueeze(0);
  if (options.key_begin.defined()) seen = seen.logical_and(j.unsqueeze(0) >= options.key_begin.view({-1, 1, 1}));
  if (options.key_end.defined()) seen = seen.logical_and(j.unsqueeze(0) < options.key_end.view({-1, 1, 1}));
  return seen.unsqueeze(1);
}

}  // namespace

at::Tensor attention_with_diagonals(const at::Tensor& q, std::span<const at::Tensor> k, std::span<const at::Tensor> v,
                                    const AttentionOptions& options) {
  const int64_t groups = q.size(1) / k[0].size(1), s = q.size(2);
  const double scale = options.scale > 0 ? options.scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor wide = q.to(at::kFloat);
  auto expand = [&](const at::Tensor& t) { return t.to(at::kFloat).repeat_interleave(groups, 1); };
  const at::Tensor seen = visible(s, options);
  at::Tensor scores = at::matmul(wide, expand(k[0]).transpose(-1, -2)) * scale;
  scores = scores.masked_fill(seen.logical_not(), -1e30);
  std::vector<at::Tensor> parts{scores};
  for (size_t b = 1; b < k.size(); ++b) parts.push_back((wide * expand(k[b])).sum(-1, true) * scale);
  const at::Tensor p = at::softmax(at::cat(parts, -1), -1);
  at::Tensor block0 = p.narrow(-1, 0, s) * seen.to(at::kFloat);
  at::Tensor out = at::matmul(block0, expand(v[0]));
  for (size_t b = 1; b < v.size(); ++b) out = out + p.narrow(-1, s + static_cast<int64_t>(b) - 1, 1) * expand(v[b]);
  return out.to(q.scalar_type());
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options) {
  return attention_with_diagonals(q, {&k, 1}, {&v, 1}, options);
}

at::Tensor attend_cached(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                         std::span<const int64_t> positions, int64_t window, double scale) {
  const int64_t heads = q.size(0), rows = q.size(1), hd = q.size(2), groups = heads / k_cache.size(0);
  const float factor = static_cast<float>(scale > 0 ? scale : 1 / std::sqrt(static_cast<double>(hd)));
  const at::Tensor wq = q.to(at::kFloat).contiguous(), wk = k_cache.to(at::kFloat).contiguous(),
                   wv = v_cache.to(at::kFloat).contiguous();
  at::Tensor out = at::empty({rows, heads * hd}, at::kFloat);
  std::vector<float> weight;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < heads; ++h) {
      const float* query = wq.const_data_ptr<float>() + (h * rows + r) * hd;
      const float* keys = wk.const_data_ptr<float>() + (h / groups) * k_cache.size(1) * hd;
      const float* values = wv.const_data_ptr<float>() + (h / groups) * k_cache.size(1) * hd;
      float* to = out.mutable_data_ptr<float>() + (r * heads + h) * hd;
      const int64_t first = window > 0 ? std::max<int64_t>(0, positions[r] - window + 1) : 0, last = positions[r];
      weight.assign(static_cast<size_t>(last - first + 1), 0);
      float top = -INFINITY, total = 0;
      for (int64_t t = first; t <= last; ++t) {
        float dot = 0;
        for (int64_t d = 0; d < hd; ++d) dot = std::fma(query[d], keys[t * hd + d], dot);
        weight[t - first] = dot * factor;
        top = std::max(top, dot * factor);
      }
      for (float& w : weight) total += w = std::exp(w - top);
      for (int64_t d = 0; d < hd; ++d) {
        float sum = 0;
        for (int64_t t = first; t <= last; ++t) sum = std::fma(weight[t - first], values[t * hd + d], sum);
        to[d] = sum / total;
      }
    }
  }
  return out.to(q.scalar_type());
}

}  // namespace sf::ops
