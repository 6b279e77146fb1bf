// SPDX-License-Identifier: Apache-2.0
#include "gen/block.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/fault.h"
#include "gen/gates.h"
#include "gen/tree.h"
#include "ops/attention.h"
#include "ops/norm.h"
#include "ops/parallel.h"
#include "ops/rope.h"

namespace sf::gen {

void Rows::add(Cache& cache, int64_t count) {
  SF_ASSERT(count > 0 && std::none_of(runs_.begin(), runs_.end(), [&](const Run& r) { return r.cache == &cache; }));
  SF_ASSERT(cache.length_ + count <= cache.capacity_ && cache.nodes() == 0);
  runs_.push_back({&cache, cache.length_, count, this->count()});
  for (int64_t i = 0; i < count; ++i) positions_.push_back(cache.length_ + i);
  cache.length_ += count;
}

void Rows::add(Cache& cache, std::span<const int32_t> parents) {
  SF_ASSERT(!parents.empty() &&
            std::none_of(runs_.begin(), runs_.end(), [&](const Run& r) { return r.cache == &cache; }));
  runs_.push_back({&cache, cache.length_, std::ssize(parents), count(), cache.nodes()});
  for (int32_t parent : parents) {
    const auto node = static_cast<int32_t>(cache.nodes());
    SF_ASSERT(parent == kTrunk || (parent >= 0 && parent < node));
    cache.parents_.push_back(parent);
    positions_.push_back(cache.length_ + std::ssize(cache.path_to(node)) - 1);
    SF_ASSERT(positions_.back() < cache.parked(node));
  }
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

namespace {

// Row `row` of `from` [nKV, rows, hd] into entry `entry` of the cache's [nKV, capacity, hd].
void copy_row(const at::Tensor& from, int64_t row, const at::Tensor& to, int64_t entry) {
  SF_ASSERT(from.scalar_type() == to.scalar_type() && from.stride(2) == 1 && to.stride(2) == 1);
  const auto size = static_cast<int64_t>(from.itemsize());
  const auto* source = static_cast<const std::byte*>(from.const_data_ptr());
  auto* target = static_cast<std::byte*>(to.data_ptr());
  for (int64_t head = 0; head < from.size(0); ++head)
    std::memcpy(target + (head * to.stride(0) + entry * to.stride(1)) * size,
                source + (head * from.stride(0) + row * from.stride(1)) * size,
                static_cast<size_t>(from.size(2) * size));
}

// The run's rows into the positions behind the cache's.
void write(const at::Tensor& from, const Rows::Run& run, const at::Tensor& to) {
  for (int64_t i = 0; i < run.count; ++i) copy_row(from, run.row + i, to, run.first + i);
}

void put_rows(const at::Tensor& rows, at::Tensor& into, int64_t row) {
  std::memcpy(static_cast<std::byte*>(into.data_ptr()) + row * into.stride(0) * into.itemsize(), rows.const_data_ptr(),
              rows.nbytes());
}

}  // namespace

void Block::make_attention(const Weights& weights, const std::string& at) {
  const BlockShape& s = shape_;
  const int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim, queries = s.gated ? 2 * q : q;
  qkv_ = Linear(weights, std::array{at + "q_proj.weight", at + "k_proj.weight", at + "v_proj.weight"},
                std::array{queries, kv, kv}, s.in);
  o_ = Linear(weights, std::array{at + "o_proj.weight"}, std::array{s.hidden}, q);
  if (s.qkv_bias)
    qkv_bias_ = at::cat({weights.get(at + "q_proj.bias", {queries}), weights.get(at + "k_proj.bias", {kv}),
                         weights.get(at + "v_proj.bias", {kv})});
  o_bias_ = weights.maybe(at + "o_proj.bias", {s.hidden}, s.o_bias);
  q_norm_ = weights.maybe(at + "q_norm.weight", {s.head_dim}, s.qk_norm);
  k_norm_ = weights.maybe(at + "k_norm.weight", {s.head_dim}, s.qk_norm);
}

Block::Block(const Weights& weights, const std::string& prefix, const BlockShape& shape) : shape_(shape) {
  const std::string mlp = prefix + "mlp.";
  if (shape.delta)
    delta_.emplace(weights, prefix + "linear_attn.", *shape.delta, shape.hidden, shape.eps);
  else
    make_attention(weights, prefix + "self_attn.");
  if (shape.experts.count > 0)
    routed_.emplace(weights, mlp, shape.hidden, shape.experts, shape.mlp_bias);
  else
    mlp_.emplace(weights, mlp, shape.hidden, shape.intermediate, shape.mlp_bias);
  post_norm_ = weights.get(prefix + "post_attention_layernorm.weight", {shape.hidden});
}

at::Tensor normed(const BlockShape& shape, const at::Tensor& x, const at::Tensor& weight) {
  return shape.centred ? ops::rms_norm_centred(x, weight, shape.eps) : ops::rms_norm(x, weight, shape.eps);
}

std::optional<Recurrent> Block::fresh() const {
  return delta_ ? std::optional(delta_->fresh()) : std::nullopt;
}

Block::Heads Block::heads(const at::Tensor& x, const Rows& rows) const {
  const BlockShape& s = shape_;
  const at::Tensor all = qkv_.apply(x, qkv_bias_);
  // [rows, heads, width]: query heads, each with its gate behind it if there are gates, then key heads, then value
  // heads.
  auto part = [&](int64_t first, int64_t count, int64_t width) {
    return all.narrow(1, first, count * width).unflatten(1, {count, width});
  };
  const int64_t width = s.gated ? 2 * s.head_dim : s.head_dim, keys = s.heads * width;
  const at::Tensor queries = part(0, s.heads, width);
  at::Tensor q = queries.narrow(2, 0, s.head_dim).transpose(0, 1);
  at::Tensor k = part(keys, s.kv_heads, s.head_dim).transpose(0, 1);
  if (s.qk_norm) q = norm(q, q_norm_), k = norm(k, k_norm_);
  return {ops::apply_rotary(q, rows.table(), rows.turns()), ops::apply_rotary(k, rows.table(), rows.turns()),
          part(keys + s.kv_heads * s.head_dim, s.kv_heads, s.head_dim).transpose(0, 1),
          s.gated ? queries.narrow(2, s.head_dim, s.head_dim) : at::Tensor()};
}

void Block::remember(const at::Tensor& x, const Rows& rows, int64_t layer) const {
  const Heads own = heads(x, rows);
  for (const Rows::Run& run : rows.runs()) {
    SF_ASSERT(run.node < 0);
    write(own.k, run, run.cache->keys(layer));
    write(own.v, run, run.cache->values(layer));
  }
}

at::Tensor Block::attend(const at::Tensor& x, const Rows& rows, int64_t layer) const {
  if (delta_) return delta_->mix(x, rows, layer);
  const Heads own = heads(x, rows);
  at::Tensor mixed = at::empty({rows.count(), shape_.heads * shape_.head_dim}, own.q.options());
  const std::span<const Rows::Run> runs = rows.runs();
  ops::parallel()(runs.size(), [&](size_t begin, size_t end) {
    at::AutoDispatchBelowADInplaceOrView no_gradients;  // the guard of the calling thread does not reach this one
    for (size_t i = begin; i < end; ++i)
      if (runs[i].node < 0)
        attend(own, rows, runs[i], layer, mixed);
      else
        attend_nodes(own, rows, runs[i], layer, mixed);
  });
  if (own.gate.defined()) mixed = gated_by_sigmoid(mixed, own.gate.flatten(1));
  return o_.apply(mixed, o_bias_);
}

void Block::attend(const Heads& own, const Rows& rows, const Rows::Run& run, int64_t layer, at::Tensor& mixed) const {
  at::Tensor keys = run.cache->keys(layer), values = run.cache->values(layer);
  write(own.k, run, keys);
  write(own.v, run, values);
  const std::vector<int64_t> last(static_cast<size_t>(run.count), run.first + run.count - 1);
  put_rows(ops::attend_cached(own.q.narrow(1, run.row, run.count), keys, values,
                              shape_.whole_run ? std::span<const int64_t>(last) : rows.positions(run), shape_.window),
           mixed, run.row);
}

// Rows that follow each other down one path share a call; before it, that path is laid behind the cache's positions.
void Block::attend_nodes(const Heads& own, const Rows& rows, const Rows::Run& run, int64_t layer,
                         at::Tensor& mixed) const {
  const Cache& cache = *run.cache;
  at::Tensor keys = cache.keys(layer), values = cache.values(layer);
  for (int64_t i = 0; i < run.count; ++i) {
    const int64_t entry = cache.parked(static_cast<int32_t>(run.node + i));
    copy_row(own.k, run.row + i, keys, entry);
    copy_row(own.v, run.row + i, values, entry);
  }
  std::vector<int32_t> laid;
  auto lay = [&](const std::vector<int32_t>& path) {
    const size_t held = static_cast<size_t>(std::ranges::mismatch(laid, path).in1 - laid.begin());
    for (size_t depth = fault("gen.other_branch") ? laid.size() : held; depth < path.size(); ++depth) {
      const int64_t entry = run.first + static_cast<int64_t>(depth);
      copy_row(keys, cache.parked(path[depth]), keys, entry);
      copy_row(values, cache.parked(path[depth]), values, entry);
    }
    laid = path;
  };
  for (int64_t begin = 0, end = 0; begin < run.count; begin = end) {
    std::vector<int32_t> path = cache.path_to(static_cast<int32_t>(run.node + begin));
    for (end = begin + 1; end < run.count; ++end) {
      std::vector<int32_t> longer = cache.path_to(static_cast<int32_t>(run.node + end));
      if (longer.size() != path.size() + 1 || longer[path.size() - 1] != path.back()) break;
      path = std::move(longer);
    }
    lay(path);
    put_rows(
        ops::attend_cached(own.q.narrow(1, run.row + begin, end - begin), keys, values,
                           rows.positions(run).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
                           shape_.window),
        mixed, run.row + begin);
  }
}

at::Tensor Block::post_normed(const at::Tensor& h) const {
  return norm(h, post_norm_);
}

at::Tensor Block::mlp(const at::Tensor& x) const {
  return mlp_ ? mlp_->apply(x) : routed_->apply(x);
}

size_t Block::adapt(const LiveAdapter& adapter) {
  const size_t mixed = delta_ ? delta_->adapt(adapter) : qkv_.adapt(adapter) + o_.adapt(adapter);
  return mixed + (mlp_ ? mlp_->adapt(adapter) : 0);
}

void Block::feed_forward(at::Tensor& h) const {
  h.add_(mlp(post_normed(h)));
}

}  // namespace sf::gen
