// SPDX-License-Identifier: Apache-2.0
#include "gen/target.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/fault.h"
#include "ckpt/as_published.h"
#include "ckpt/buffers.h"
#include "gen/scores.h"
#include "gen/segments.h"
#include "ops/parallel.h"

namespace sf::gen {
namespace {

constexpr const char* kEmbedding = "model.embed_tokens.weight";

std::string layer_prefix(size_t i) {
  return "model.layers." + std::to_string(i) + ".";
}

}  // namespace

Target Target::load(const ckpt::Checkpoint& checkpoint, Dtype compute, const ckpt::AdapterFiles* adapter,
                    const at::Tensor& embedding) {
  ckpt::check_as_published(checkpoint);
  arch::Decoder decoder = arch::decoder_from_config(checkpoint.config());
  ckpt::check_buffers(checkpoint, arch::describe(decoder));
  Weights weights(checkpoint, compute, adapter);
  if (embedding.defined()) weights.lend(kEmbedding, embedding);
  return Target(decoder, weights);
}

Target::Target(const arch::Decoder& decoder, const Weights& weights)
    : decoder_(decoder),
      compute_(weights.compute()),
      rotary_(std::make_shared<model::Rotary>(decoder.rope, decoder.rotary_dims(), decoder.max_positions)) {
  const arch::Decoder& d = decoder_;
  SF_CHECK(d.wide.streams == 1, Exit::kConfig, "answers of the {} family cannot be generated", d.family);
  std::vector<std::optional<Block>> blocks(static_cast<size_t>(d.layers));
  // Reading, hashing and packing a block keeps one core busy: blocks, and the vocabulary's tables, side by side.
  ops::parallel()(blocks.size() + 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (i == 0)
        load_vocabulary(weights);
      else
        blocks[i - 1].emplace(weights, layer_prefix(i - 1), block_shape(d, static_cast<int64_t>(i - 1)));
    }
  });
  for (int64_t i = 0; i < d.layers; ++i) {
    blocks_.push_back(std::move(*blocks[static_cast<size_t>(i)]));
    input_norms_.push_back(weights.get(layer_prefix(static_cast<size_t>(i)) + "input_layernorm.weight", {d.hidden}));
    places_.push_back(d.recurs(i) ? recurrent_++ : attending_++);
  }
  final_norm_ = weights.get("model.norm.weight", {d.hidden});
}

void Target::load_vocabulary(const Weights& weights) {
  const arch::Decoder& d = decoder_;
  table_ = weights.get(kEmbedding, {d.vocab, d.hidden});
  head_ = d.tied ? ops::PackedLinear::pack(table_.to(scalar_type(compute_)), compute_)
                 : weights.pack(std::array<std::string, 1>{"lm_head.weight"}, std::array{d.vocab}, d.hidden);
}

void Part::add_to(Rows& rows) const {
  if (parents.empty())
    rows.add(*cache, std::ssize(ids));
  else
    rows.add(*cache, parents);
}

Cache Target::make_cache(int64_t capacity) const {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  std::vector<Recurrent> recurrent;
  for (const Block& block : blocks_)
    if (std::optional<Recurrent> fresh = block.fresh()) recurrent.push_back(std::move(*fresh));
  return Cache(attending_, decoder_.kv_heads, decoder_.head_dim, capacity, compute_, std::move(recurrent));
}

at::Tensor Target::embed(std::span<const int32_t> ids) const {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  at::Tensor index = at::empty({static_cast<int64_t>(ids.size())}, at::kLong);
  for (size_t i = 0; i < ids.size(); ++i) {
    SF_CHECK(ids[i] >= 0 && ids[i] < decoder_.vocab, Exit::kData, "token id {} is outside the vocabulary of {}", ids[i],
             decoder_.vocab);
    index.data_ptr<int64_t>()[i] = ids[i];
  }
  return at::index_select(table_, 0, index).to(scalar_type(compute_));
}

States Target::forward(std::span<const Part> parts, std::span<const int64_t> capture) {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  for (int64_t layer : capture)
    SF_CHECK(layer >= 0 && layer <= decoder_.layers, Exit::kConfig, "layer {} to capture is not in 0..{}", layer,
             decoder_.layers);
  std::vector<int32_t> ids;
  for (const Part& part : parts) ids.insert(ids.end(), part.ids.begin(), part.ids.end());
  at::Tensor h = embed(ids);
  Rows rows;
  for (const Part& part : parts) part.add_to(rows);
  rows.place(*rotary_);
  States states;
  states.captured.resize(capture.size());
  for (int64_t layer = 0; layer <= decoder_.layers; ++layer) {
    for (size_t i = 0; i < capture.size(); ++i)
      if (capture[i] == layer) states.captured[i] = h.clone();
    if (layer == decoder_.layers) break;
    const Block& block = blocks_[static_cast<size_t>(layer)];
    const auto at = static_cast<size_t>(layer);
    h.add_(block.attend(block.norm(h, input_norms_[at]), rows, places_[at]));
    block.feed_forward(h);
  }
  states.final_norm = blocks_.back().norm(h, final_norm_);
  ++forwards_;
  return states;
}

States Target::prefill(Cache& cache, std::span<const int32_t> ids, std::span<const int64_t> capture) {
  SF_CHECK(!ids.empty(), Exit::kData, "a prompt holds no token");
  std::vector<States> pieces;
  for (size_t begin = 0; begin < ids.size();) {
    const auto room = static_cast<size_t>(kCut - cache.length() % kCut);
    const Part part{&cache, ids.subspan(begin, std::min(room, ids.size() - begin))};
    pieces.push_back(forward(std::span(&part, 1), capture));
    begin += part.ids.size();
  }
  if (pieces.size() == 1) return std::move(pieces.front());
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  States all;
  std::vector<at::Tensor> column;
  for (const States& piece : pieces) column.push_back(piece.final_norm);
  all.final_norm = at::cat(column, 0);
  for (size_t i = 0; i < capture.size(); ++i) {
    column.clear();
    for (const States& piece : pieces) column.push_back(piece.captured[i]);
    all.captured.push_back(at::cat(column, 0));
  }
  return all;
}

void Target::adapt(const LiveAdapter& adapter) {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  size_t taken = 0;
  for (Block& block : blocks_) taken += block.adapt(adapter);
  SF_CHECK(
      taken == adapter.size(), Exit::kConfig,
      "{} of {} adapted parameters can be put on top of a target while it decodes: those of attention, delta nets and "
      "MLPs can, those of experts, the shared one too, cannot; sf-shard merge makes one target of both",
      taken, adapter.size());
}

at::Tensor Target::logits(const at::Tensor& final_norm) const {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  return head_.apply_fp32(final_norm);
}

ops::Top1 Target::top1(const at::Tensor& final_norm) const {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  ops::Top1 best = ops::argmax_and_lse(final_norm, head_);
  check_scores(best, "target");
  return best;
}

void check_scores(const ops::Top1& best, std::string_view whose) {
  const float* lse = best.lse.const_data_ptr<float>();
  for (int64_t row = 0; row < best.lse.numel(); ++row)
    SF_CHECK(std::isfinite(lse[row]) || fault("gen.take_non_finite"), Exit::kData,
             "scores of the {} are not finite: the model's output is broken", whose);
}

}  // namespace sf::gen
