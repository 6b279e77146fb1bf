// SPDX-License-Identifier: Apache-2.0
#include "gen/draft_blocks.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>

#include <array>

#include "base/error.h"
#include "ops/norm.h"

namespace sf::gen {

BlockDrafter::BlockDrafter(const arch::Dflash& draft, const Weights& weights, const Target& target)
    : draft_(draft),
      target_(target),
      rotary_(std::make_shared<model::Rotary>(draft.rope, draft.head_dim, draft.max_positions)) {
  arch::check_trainable(draft);
  const int64_t h = draft.hidden;
  fc_ = weights.pack(std::array<std::string, 1>{"fc.weight"}, std::array{h}, std::ssize(draft.capture_layers) * h);
  hidden_norm_ = weights.get("hidden_norm.weight", {h});
  norm_ = weights.get("norm.weight", {h});
  for (int64_t i = 0; i < draft.layers; ++i) {
    const std::string prefix = "layers." + std::to_string(i) + ".";
    const int64_t window = draft.windows.empty() ? 0 : draft.windows[static_cast<size_t>(i)];
    blocks_.emplace_back(weights, prefix,
                         BlockShape{.in = h,
                                    .hidden = h,
                                    .intermediate = draft.intermediate,
                                    .heads = draft.heads,
                                    .kv_heads = draft.kv_heads,
                                    .head_dim = draft.head_dim,
                                    .window = window,
                                    .eps = draft.rms_eps,
                                    .qkv_bias = draft.bias,
                                    .o_bias = draft.bias,
                                    .qk_norm = true,
                                    .whole_run = window == 0});
    input_norms_.push_back(weights.get(prefix + "input_layernorm.weight", {h}));
  }
}

Cache BlockDrafter::make_cache(int64_t capacity) const {
  return Cache(draft_.layers, draft_.kv_heads, draft_.head_dim, capacity, target_.compute());
}

at::Tensor BlockDrafter::around(int64_t, bool, const at::Tensor& x, const Sublayer& sublayer) const {
  return sublayer(x);
}

void BlockDrafter::feed(Seats seats) {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  Fed fed(seats, draft_.capture_layers.size());
  Rows rows;
  for (size_t i = 0; i < seats.size(); ++i) rows.add(seats[i]->draft_cache, fed.rows[i]);
  rows.place(*rotary_);
  const at::Tensor context = ops::rms_norm(fc_.apply(at::cat(fed.captured, -1)), hidden_norm_, draft_.rms_eps);
  for (int64_t i = 0; i < draft_.layers; ++i) blocks_[static_cast<size_t>(i)].remember(context, rows, i);
  ++forwards_;
}

// Of the blocks behind each seat's last token, [seats K, H].
at::Tensor BlockDrafter::states(Seats seats) {
  Rows rows;
  std::vector<int32_t> ids;
  for (Seat* seat : seats) {
    SF_ASSERT(seat->fed + 1 == std::ssize(seat->sequence.ids()));
    rows.add(seat->draft_cache, draft_.block);
    ids.push_back(seat->sequence.last());
    ids.insert(ids.end(), static_cast<size_t>(draft_.block - 1), static_cast<int32_t>(draft_.mask_token));
  }
  rows.place(*rotary_);
  at::Tensor h = target_.embed(ids);
  if (embedding_scale != 1) h = h.mul(embedding_scale);
  for (int64_t i = 0; i < draft_.layers; ++i) {
    const Block& block = blocks_[static_cast<size_t>(i)];
    h = h.add(around(i, true, ops::rms_norm(h, input_norms_[static_cast<size_t>(i)], draft_.rms_eps),
                     [&](const at::Tensor& x) { return block.attend(x, rows, i); }));
    h = h.add(around(i, false, block.post_normed(h), [&](const at::Tensor& x) { return block.mlp(x); }));
  }
  ++forwards_;
  return ops::rms_norm(h, norm_, draft_.rms_eps);
}

void BlockDrafter::propose(Seats seats, int64_t count, const Picker& picker) {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  feed(seats);
  const at::Tensor all = states(seats), logits = target_.logits(all);
  for (size_t i = 0; i < seats.size(); ++i) {
    const int64_t first = static_cast<int64_t>(i) * draft_.block;
    walk(*seats[i], all.narrow(0, first, draft_.block), logits.narrow(0, first, draft_.block), count, picker);
  }
}

}  // namespace sf::gen
