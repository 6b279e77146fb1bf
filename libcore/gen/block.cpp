// SPDX-License-Identifier: Apache-2.0
#include "gen/block.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "ops/attention.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"

namespace sf::gen {

void Rows::add(Cache& cache, int64_t count) {
  SF_ASSERT(count > 0 && std::none_of(runs_.begin(), runs_.end(), [&](const Run& r) { return r.cache == &cache; }));
  SF_ASSERT(cache.length_ + count <= cache.capacity_);
  runs_.push_back({&cache, cache.length_, count});
  for (int64_t i = 0; i < count; ++i) positions_.push_back(cache.length_ + i);
  cache.length_ += count;
}

void Rows::place(const model::Rotary& rotary) {
  turns_ = at::empty({count()}, at::kLong);
  std::copy(positions_.begin(), positions_.end(), turns_.data_ptr<int64_t>());
  const int64_t longest = *std::max_element(positions_.begin(), positions_.end()) + 1;
  if (!rotary.depends_on_length(longest)) {
    table_ = rotary.table(longest);
    return;
  }
  // A row turns as the sequence ending in it needs it, so that a prefill's rows equal a decode's.
  std::vector<at::Tensor> cos, sin;
  for (size_t i = 0; i < positions_.size(); ++i) {
    ops::RotaryTable own = rotary.table(positions_[i] + 1);
    cos.push_back(own.cos.narrow(0, positions_[i], 1));
    sin.push_back(own.sin.narrow(0, positions_[i], 1));
    turns_.data_ptr<int64_t>()[i] = static_cast<int64_t>(i);
  }
  table_ = {at::cat(cos, 0), at::cat(sin, 0)};
}

Block::Block(const Weights& weights, const std::string& prefix, const BlockShape& shape) : shape_(shape) {
  const std::string attn = prefix + "self_attn.", mlp = prefix + "mlp.";
  const int64_t q = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim, inner = shape.intermediate;
  qkv_ = weights.pack(std::array{attn + "q_proj.weight", attn + "k_proj.weight", attn + "v_proj.weight"},
                      std::array{q, kv, kv}, shape.in);
  o_ = weights.pack(std::array{attn + "o_proj.weight"}, std::array{shape.hidden}, q);
  gate_up_ = weights.pack(std::array{mlp + "gate_proj.weight", mlp + "up_proj.weight"}, std::array{inner, inner},
                          shape.hidden);
  down_ = weights.pack(std::array{mlp + "down_proj.weight"}, std::array{shape.hidden}, inner);
  if (shape.qkv_bias)
    qkv_bias_ = at::cat({weights.get(attn + "q_proj.bias", {q}), weights.get(attn + "k_proj.bias", {kv}),
                         weights.get(attn + "v_proj.bias", {kv})});
  o_bias_ = weights.maybe(attn + "o_proj.bias", {shape.hidden}, shape.o_bias);
  if (shape.mlp_bias)
    gate_up_bias_ = at::cat({weights.get(mlp + "gate_proj.bias", {inner}), weights.get(mlp + "up_proj.bias", {inner})});
  down_bias_ = weights.maybe(mlp + "down_proj.bias", {shape.hidden}, shape.mlp_bias);
  q_norm_ = weights.maybe(attn + "q_norm.weight", {shape.head_dim}, shape.qk_norm);
  k_norm_ = weights.maybe(attn + "k_norm.weight", {shape.head_dim}, shape.qk_norm);
  post_norm_ = weights.get(prefix + "post_attention_layernorm.weight", {shape.hidden});
}

at::Tensor Block::attend(const at::Tensor& x, const Rows& rows, int64_t layer) const {
  const BlockShape& s = shape_;
  const int64_t n = rows.count();
  // [rows, heads, hd] -> [heads, rows, hd]: query heads, then key heads, then value heads
  at::Tensor all = qkv_.apply(x, qkv_bias_).view({n, s.heads + 2 * s.kv_heads, s.head_dim}).transpose(0, 1);
  at::Tensor q = all.narrow(0, 0, s.heads), k = all.narrow(0, s.heads, s.kv_heads);
  at::Tensor v = all.narrow(0, s.heads + s.kv_heads, s.kv_heads);
  if (s.qk_norm) q = ops::rms_norm(q, q_norm_, s.eps), k = ops::rms_norm(k, k_norm_, s.eps);
  q = ops::apply_rotary(q, rows.table(), rows.turns());
  k = ops::apply_rotary(k, rows.table(), rows.turns());
  std::vector<at::Tensor> mixed;
  int64_t row = 0;
  for (const Rows::Run& run : rows.runs()) {
    at::Tensor keys = run.cache->keys(layer), values = run.cache->values(layer);
    keys.narrow(1, run.first, run.count).copy_(k.narrow(1, row, run.count));
    values.narrow(1, run.first, run.count).copy_(v.narrow(1, row, run.count));
    mixed.push_back(ops::attend_cached(q.narrow(1, row, run.count), keys, values, rows.positions(run, row), s.window));
    row += run.count;
  }
  return o_.apply(mixed.size() == 1 ? mixed.front() : at::cat(mixed, 0), o_bias_);
}

void Block::feed_forward(at::Tensor& h) const {
  at::Tensor both = gate_up_.apply(ops::rms_norm(h, post_norm_, shape_.eps), gate_up_bias_);
  const int64_t inner = shape_.intermediate;
  h.add_(down_.apply(ops::swiglu(both.narrow(-1, 0, inner), both.narrow(-1, inner, inner)), down_bias_));
}

}  // namespace sf::gen
