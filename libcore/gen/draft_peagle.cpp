// SPDX-License-Identifier: Apache-2.0
#include "gen/draft_peagle.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "ckpt/draft.h"
#include "ops/norm.h"

namespace sf::gen {

PeagleDraft::PeagleDraft(const arch::Peagle& draft, const Weights& weights, std::span<const int64_t> offsets,
                         const Target& target)
    : draft_(draft),
      target_(target),
      rotary_(std::make_shared<model::Rotary>(draft.rope, draft.head_dim, draft.max_positions)),
      target_ids_(vocabulary_ids(offsets, draft.draft_vocab, draft.vocab)) {
  SF_CHECK(draft.mask_token >= 0, Exit::kConfig, "this P-EAGLE draft names no mask_token_id");
  const int64_t h = draft.hidden, wide = 3 * draft.target_hidden;
  for (int64_t i = 0; i < draft.layers; ++i) {
    const std::string prefix = "layers." + std::to_string(i) + ".";
    blocks_.emplace_back(weights, prefix,
                         BlockShape{.in = i == 0 ? 2 * h : h,
                                    .hidden = h,
                                    .intermediate = draft.intermediate,
                                    .heads = draft.heads,
                                    .kv_heads = draft.kv_heads,
                                    .head_dim = draft.head_dim,
                                    .eps = draft.rms_eps});
    input_norms_.push_back(weights.get(prefix + "input_layernorm.weight", {h}));
  }
  fc_ = weights.pack(std::array<std::string, 1>{"fc.weight"}, std::array{h}, wide);
  head_ = weights.pack(std::array<std::string, 1>{"lm_head.weight"}, std::array{draft.draft_vocab}, h);
  table_ = weights.get("embed_tokens.weight", {draft.vocab, h});
  mask_hidden_ = weights.get("mask_hidden", {1, 1, wide}).view({1, wide});
  hidden_norm_ = weights.get("layers.0.hidden_norm.weight", {h});
  norm_ = weights.get("norm.weight", {h});
}

Cache PeagleDraft::make_cache(int64_t capacity) const {
  return Cache(draft_.layers, draft_.kv_heads, draft_.head_dim, capacity, target_.compute());
}

at::Tensor PeagleDraft::forward(Seats seats, const Fed& fed, int64_t masks) {
  Rows rows;
  std::vector<int64_t> ids;
  std::vector<at::Tensor> carried;
  const at::Tensor known = fc_.apply(at::cat(fed.captured, -1)), mask = fc_.apply(mask_hidden_);
  for (size_t i = 0, row = 0; i < seats.size(); row += static_cast<size_t>(fed.rows[i++])) {
    const std::span<const int32_t> behind =
        seats[i]->sequence.ids().subspan(static_cast<size_t>(fed.first[i]) + 1, static_cast<size_t>(fed.rows[i]));
    ids.insert(ids.end(), behind.begin(), behind.end());
    ids.insert(ids.end(), static_cast<size_t>(masks), draft_.mask_token);
    carried.push_back(known.narrow(0, static_cast<int64_t>(row), fed.rows[i]));
    if (masks > 0) carried.push_back(mask.expand({masks, draft_.hidden}));
    rows.add(seats[i]->draft_cache, fed.rows[i] + masks);
  }
  rows.place(*rotary_);
  at::Tensor index = at::empty({std::ssize(ids)}, at::kLong);
  std::copy(ids.begin(), ids.end(), index.mutable_data_ptr<int64_t>());
  at::Tensor h = at::cat(carried, 0);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    at::Tensor residual = h,
               x = ops::rms_norm(i == 0 ? table_.index_select(0, index) : h, input_norms_[i], draft_.rms_eps);
    if (i == 0) {
      const at::Tensor normed = ops::rms_norm(h, hidden_norm_, draft_.rms_eps);
      if (draft_.norm_before_residual) residual = normed;
      x = at::cat({x, normed}, -1);
    }
    h = residual.add(blocks_[i].attend(x, rows, static_cast<int64_t>(i)));
    blocks_[i].feed_forward(h);
  }
  ++forwards_;
  return h;
}

void PeagleDraft::feed(Seats seats) {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  forward(seats, Fed(seats, draft_.capture_layers.size()), 0);
}

at::Tensor PeagleDraft::scores(Seats seats, int64_t count) {
  const Fed fed(seats, draft_.capture_layers.size());
  const at::Tensor all = forward(seats, fed, count - 1);
  int64_t row = 0;
  std::vector<at::Tensor> last;
  for (size_t i = 0; i < seats.size(); ++i) {
    row += fed.rows[i] - 1;
    last.push_back(all.narrow(0, row, count));
    row += count;
  }
  return head_.apply_fp32(ops::rms_norm(at::cat(last, 0), norm_, draft_.rms_eps));
}

void PeagleDraft::propose(Seats seats, int64_t count, const Picker& picker) {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  const at::Tensor all = scores(seats, count);
  for (size_t i = 0; i < seats.size(); ++i)
    for (int64_t j = 0; j < count; ++j)
      picker.pick(*seats[i], row_of(all, static_cast<int64_t>(i) * count + j), target_ids_);
}

// What follows a node does not depend on the node: a level's scores serve all of its branches.
void PeagleDraft::grow(Seats seats, const Proposals& proposals) {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  const at::Tensor all = scores(seats, proposals.depth);
  for (size_t i = 0; i < seats.size(); ++i) {
    Tree& tree = seats[i]->tree;
    std::vector<int32_t> front = {kTrunk};
    for (int32_t depth = 0; depth < proposals.depth; ++depth) {
      tree.sprout(front, row_of(all, static_cast<int64_t>(i) * proposals.depth + depth), target_ids_, proposals.width);
      front = tree.likeliest(depth, proposals.width);
    }
    tree = tree.pruned(proposals.nodes);
  }
}

std::unique_ptr<Drafter> open_peagle(const ckpt::Checkpoint& checkpoint, const Target& target, const DrafterOptions&) {
  return std::make_unique<PeagleDraft>(arch::peagle_from_config(checkpoint.config()),
                                       Weights(checkpoint, target.compute()), ckpt::read_vocab_map(checkpoint).d2t,
                                       target);
}

}  // namespace sf::gen
