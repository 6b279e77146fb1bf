// SPDX-License-Identifier: Apache-2.0
// Attention of a block. Source: models_text_scoring 1.5, 1.6, 3.2.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sigmoid.h>

#include "model/block_parts.h"
#include "model/indexed_attention.h"
#include "ops/attention.h"

namespace sf::model {
namespace {

at::Tensor as_index(const std::vector<TokenRange>& ranges, int64_t TokenRange::*side) {
  at::Tensor index = at::empty({std::ssize(ranges)}, at::kLong);
  for (size_t i = 0; i < ranges.size(); ++i) index.mutable_data_ptr<int64_t>()[i] = ranges[i].*side;
  return index;
}

class SelfAttention {
 public:
  SelfAttention(const arch::Decoder& decoder, int64_t layer, std::shared_ptr<const Rotary> rotary)
      : d_(decoder),
        window_(decoder.windows.empty() ? 0 : decoder.windows.at(static_cast<size_t>(layer))),
        rotary_(std::move(rotary)) {}

  at::Tensor operator()(const Given& given, const at::Tensor& x) const {
    at::Tensor queries = split(given.project(x, "self_attn.q_proj", d_.qkv_bias), d_.heads), gate;
    if (d_.gated_attention) {
      gate = queries.narrow(-1, d_.head_dim, d_.head_dim).flatten(-2);
      queries = queries.narrow(-1, 0, d_.head_dim);
    }
    at::Tensor keys = split(given.project(x, "self_attn.k_proj", d_.qkv_bias), d_.kv_heads);
    at::Tensor values = split(given.project(x, "self_attn.v_proj", d_.qkv_bias), d_.kv_heads);
    const Rotary::Turns turns = rotary_->turns_for(given.boundary("positions"));
    at::Tensor q = turned(given, queries, "self_attn.q_norm", turns);
    at::Tensor k = turned(given, keys, "self_attn.k_norm", turns);
    at::Tensor mixed = attend(given, x, turns, {q, k, values.transpose(1, 2)}).transpose(1, 2).flatten(-2);
    if (gate.defined()) mixed = mixed.mul(at::sigmoid(gate));
    return given.project(mixed, "self_attn.o_proj", d_.o_bias);
  }

 private:
  struct Heads {
    at::Tensor q, k, v;  // [B, n, S, hd]
  };

  // Rows within the budget of an indexer see all that lies before them, the others what it keeps for them.
  at::Tensor attend(const Given& given, const at::Tensor& x, const Rotary::Turns& turns, const Heads& h) const {
    const int64_t length = x.size(1);
    const std::vector<TokenRange> ranges = token_ranges(given.mask(), x.size(0), length);
    const int64_t dense = dense_rows(d_.indexer, ranges, length);
    ops::AttentionOptions options{.window = window_};
    if (given.mask())
      options.key_begin = as_index(ranges, &TokenRange::begin), options.key_end = as_index(ranges, &TokenRange::end);
    if (dense == length) return ops::attention(h.q, h.k, h.v, options);
    auto first = [&](const at::Tensor& of) { return of.narrow(2, 0, dense); };
    at::Tensor sparse =
        attend_kept(h.q.narrow(2, dense, length - dense), h.k, h.v, indexed_keys(d_, given, x, turns, dense));
    return at::cat({ops::attention(first(h.q), first(h.k), first(h.v), options), sparse}, 2);
  }

  // [B,S,n*w] -> [B,S,n,w].
  static at::Tensor split(const at::Tensor& projected, int64_t count) {
    return projected.unflatten(-1, {count, projected.size(-1) / count});
  }

  // [B,S,n,hd] -> [B,n,S,hd], normed per head where the family does so.
  at::Tensor turned(const Given& given, const at::Tensor& heads, std::string_view module,
                    const Rotary::Turns& turns) const {
    at::Tensor normed = d_.qk_norm ? norm(d_, heads, given.weight(module)) : heads;
    return ops::apply_rotary(normed.transpose(1, 2), turns.table, turns.rows);
  }

  arch::Decoder d_;
  int64_t window_;
  std::shared_ptr<const Rotary> rotary_;
};

}  // namespace

Part attention_part(const arch::Decoder& decoder, int64_t layer, std::shared_ptr<const Rotary> rotary) {
  return SelfAttention(decoder, layer, std::move(rotary));
}

}  // namespace sf::model
