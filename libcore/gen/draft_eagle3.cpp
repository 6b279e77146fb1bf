// SPDX-License-Identifier: Apache-2.0
#include "gen/draft_eagle3.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "ckpt/draft.h"
#include "gen/scores.h"
#include "ops/norm.h"

namespace sf::gen {
Eagle3Draft Eagle3Draft::load(const ckpt::Checkpoint& checkpoint, const Target& target) {
  const arch::Eagle3 shape = arch::eagle3_from_config(checkpoint.config());
  const arch::VocabMap map = ckpt::read_vocab_map(checkpoint);
  SF_CHECK(static_cast<int64_t>(map.t2d.size()) == shape.vocab, Exit::kData,
           "t2d has {} marks, the vocabulary {} tokens", map.t2d.size(), shape.vocab);
  return Eagle3Draft(shape, Weights(checkpoint, target.compute()), map.d2t, target);
}

Eagle3Draft::Eagle3Draft(const arch::Eagle3& draft, const Weights& weights, std::span<const int64_t> offsets,
                         const Target& target)
    : draft_(draft),
      target_(target),
      rotary_(std::make_shared<model::Rotary>(draft.rope, draft.head_dim, draft.max_positions)),
      target_ids_(vocabulary_ids(offsets, draft.draft_vocab, draft.vocab)) {
  check_geometry({{draft.capture_layers.begin(), draft.capture_layers.end()}, draft.vocab, draft.target_hidden},
                 target.decoder());
  const int64_t h = draft.hidden, wide = draft.target_hidden;
  block_.emplace(weights, "midlayer.",
                 BlockShape{.in = 2 * h,
                            .hidden = h,
                            .intermediate = draft.intermediate,
                            .heads = draft.heads,
                            .kv_heads = draft.kv_heads,
                            .head_dim = draft.head_dim,
                            .eps = draft.rms_eps});
  fc_ = weights.pack(std::array<std::string, 1>{"fc.weight"}, std::array{h}, 3 * wide);
  head_ = weights.pack(std::array<std::string, 1>{"lm_head.weight"}, std::array{draft.draft_vocab}, h);
  input_norm_ = weights.get("midlayer.input_layernorm.weight", {h});
  hidden_norm_ = weights.get("midlayer.hidden_norm.weight", {h});
  norm_ = weights.maybe("norm.weight", {h}, draft.norm_output);
  for (int i = 0; draft.fc_norm && i < 3; ++i)
    fc_norms_.push_back(weights.get("fc_norm." + std::to_string(i) + ".weight", {wide}));
  if (weights.contains("embed_tokens.weight")) own_table_ = weights.get("embed_tokens.weight", {draft.vocab, h});
  SF_CHECK(own_table_.defined() || h == target.decoder().hidden, Exit::kData,
           "the draft's hidden size {} differs from the target's {} and its checkpoint holds no embed_tokens.weight", h,
           target.decoder().hidden);
}

Cache Eagle3Draft::make_cache(int64_t capacity) const {
  return Cache(1, draft_.kv_heads, draft_.head_dim, capacity, target_.compute());
}

at::Tensor Eagle3Draft::fuse(std::span<const at::Tensor> captured) const {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  SF_ASSERT(captured.size() == 3);
  std::vector<at::Tensor> chunks(captured.begin(), captured.end());
  for (size_t i = 0; i < fc_norms_.size(); ++i) chunks[i] = ops::rms_norm(chunks[i], fc_norms_[i], draft_.rms_eps);
  return fc_.apply(at::cat(chunks, -1));
}

at::Tensor Eagle3Draft::embed(std::span<const int32_t> ids) const {
  if (!own_table_.defined()) return target_.embed(ids);
  at::Tensor index = at::empty({static_cast<int64_t>(ids.size())}, at::kLong);
  std::copy(ids.begin(), ids.end(), index.data_ptr<int64_t>());
  return at::index_select(own_table_, 0, index);
}

at::Tensor Eagle3Draft::forward(std::span<const Part> parts, const at::Tensor& carried) {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  std::vector<int32_t> ids;
  Rows rows;
  for (const Part& part : parts) {
    ids.insert(ids.end(), part.ids.begin(), part.ids.end());
    part.add_to(rows);
  }
  rows.place(*rotary_);
  at::Tensor read = at::cat(
      {ops::rms_norm(embed(ids), input_norm_, draft_.rms_eps), ops::rms_norm(carried, hidden_norm_, draft_.rms_eps)},
      -1);
  at::Tensor h = carried.add(block_->attend(read, rows, 0));
  block_->feed_forward(h);
  ++forwards_;
  return h;
}

at::Tensor Eagle3Draft::normed(const at::Tensor& carried) const {
  return norm_.defined() ? ops::rms_norm(carried, norm_, draft_.rms_eps) : carried;
}

at::Tensor Eagle3Draft::scores(const at::Tensor& carried) const {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  return head_.apply_fp32(normed(carried));
}

std::vector<int32_t> Eagle3Draft::best(const at::Tensor& carried) const {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  const ops::Top1 top = ops::argmax_and_lse(normed(carried), head_);
  check_scores(top, "draft");
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < top.top1.numel(); ++i)
    ids.push_back(target_ids_[static_cast<size_t>(top.top1.data_ptr<int32_t>()[i])]);
  return ids;
}

at::Tensor Eagle3Draft::take(Seats seats) {
  const Fed fed(seats, 3);
  std::vector<Part> parts;
  for (size_t i = 0; i < seats.size(); ++i)
    parts.push_back({&seats[i]->draft_cache, seats[i]->sequence.ids().subspan(static_cast<size_t>(fed.first[i]) + 1,
                                                                              static_cast<size_t>(fed.rows[i]))});
  const at::Tensor out = forward(parts, fuse(fed.captured));
  std::vector<at::Tensor> last;
  int64_t row = 0;
  for (int64_t rows : fed.rows) last.push_back(out.narrow(0, (row += rows) - 1, 1));
  return at::cat(last);
}

void Eagle3Draft::feed(Seats seats) {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  take(seats);
}

void Eagle3Draft::propose(Seats seats, int64_t count, const Picker& picker) {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  at::Tensor carried = take(seats);
  for (int64_t j = 0;; ++j) {
    if (picker.needs_scores()) {
      const at::Tensor all = scores(carried);
      for (size_t i = 0; i < seats.size(); ++i)
        picker.pick(*seats[i], row_of(all, static_cast<int64_t>(i)), target_ids_);
    } else {
      const std::vector<int32_t> ids = best(carried);
      for (size_t i = 0; i < seats.size(); ++i) seats[i]->proposed.push_back(ids[i]);
    }
    if (j + 1 == count) return;
    std::vector<Part> parts;
    for (Seat* seat : seats) parts.push_back({&seat->draft_cache, std::span(seat->proposed).last(1)});
    carried = forward(parts, carried);
  }
}

int64_t Eagle3Draft::look_ahead(const Proposals& proposals) const {
  const int64_t chain = proposals.depth + 1;
  return proposals.branch() ? chain + (proposals.depth - 1) * proposals.width : chain;
}

namespace {

// One seat's tree while it grows. A node's output is what its children read in place of a feature.
struct Growth {
  Seat& seat;
  std::vector<at::Tensor> outputs;    // [1, H] of each node that was looked at
  std::vector<int32_t> entries;       // of each node: its node in the draft's cache, or kTrunk
  std::vector<int32_t> front;         // the nodes of this level
  std::vector<int32_t> ids, parents;  // of those: tokens; parents in the draft's cache

  void advance(int32_t depth, int64_t width) {
    outputs.resize(seat.tree.nodes().size());
    entries.resize(seat.tree.nodes().size(), kTrunk);
    front = seat.tree.likeliest(depth, width);
    ids.clear(), parents.clear();
    auto entry = static_cast<int32_t>(seat.draft_cache.nodes());
    for (int32_t node : front) {
      const TreeNode& it = seat.tree.nodes()[static_cast<size_t>(node)];
      ids.push_back(it.token);
      parents.push_back(it.parent == kTrunk ? kTrunk : entries[static_cast<size_t>(it.parent)]);
      entries[static_cast<size_t>(node)] = entry++;
    }
  }
};

}  // namespace

void Eagle3Draft::grow(Seats seats, const Proposals& proposals) {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  const at::Tensor trunk = take(seats);
  std::vector<Growth> all;
  const at::Tensor first = scores(trunk);
  for (size_t i = 0; i < seats.size(); ++i) {
    all.push_back({*seats[i]});
    seats[i]->tree.sprout(std::array{kTrunk}, row_of(first, static_cast<int64_t>(i)), target_ids_, proposals.width);
  }
  for (int32_t depth = 0; depth + 1 < proposals.depth; ++depth) {
    std::vector<Part> parts;
    std::vector<at::Tensor> carried;
    for (size_t i = 0; i < all.size(); ++i) {
      Growth& one = all[i];
      one.advance(depth, proposals.width);
      parts.push_back({&one.seat.draft_cache, one.ids, one.parents});
      for (int32_t node : one.front) {
        const int32_t parent = one.seat.tree.nodes()[static_cast<size_t>(node)].parent;
        carried.push_back(parent == kTrunk ? trunk.narrow(0, static_cast<int64_t>(i), 1)
                                           : one.outputs[static_cast<size_t>(parent)]);
      }
    }
    const at::Tensor out = forward(parts, at::cat(carried)), found = scores(out);
    int64_t row = 0;
    for (Growth& one : all)
      for (int32_t node : one.front) {
        one.outputs[static_cast<size_t>(node)] = out.narrow(0, row, 1);
        one.seat.tree.sprout(std::array{node}, row_of(found, row++), target_ids_, proposals.width);
      }
  }
  for (Seat* seat : seats) seat->tree = seat->tree.pruned(proposals.nodes);
}

std::unique_ptr<Drafter> open_eagle3(const ckpt::Checkpoint& checkpoint, const Target& target, const DrafterOptions&) {
  return std::make_unique<Eagle3Draft>(Eagle3Draft::load(checkpoint, target));
}

}  // namespace sf::gen
