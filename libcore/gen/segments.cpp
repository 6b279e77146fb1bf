// SPDX-License-Identifier: Apache-2.0
#include "gen/segments.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/index_select.h>
#include <fmt/format.h>

#include <memory>

#include "arch/states.h"
#include "base/error.h"
#include "gen/cache.h"
#include "gen/scores.h"
#include "gen/weights.h"
#include "model/rotary.h"

namespace sf::gen {
namespace {

using model::Tensors;

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kNorm = "model.norm.weight";

class Layer {
 public:
  Layer(const arch::Decoder& decoder, int64_t index, Dtype compute, int64_t cut,
        std::shared_ptr<const model::Rotary> rotary)
      : shape_(block_shape(decoder, index)),
        prefix_(fmt::format("model.layers.{}.", index)),
        reads_(fmt::format("hidden.{}", index)),
        writes_(fmt::format("hidden.{}", index + 1)),
        compute_(compute),
        cut_(cut),
        rotary_(std::move(rotary)) {}

  Tensors operator()(const Tensors& parameters, const Tensors& boundaries) const {
    at::AutoDispatchBelowADInplaceOrView no_gradients;
    const Weights weights(parameters, compute_);
    const Block block(weights, prefix_, shape_);
    const at::Tensor norm = weights.get(prefix_ + "input_layernorm.weight", {shape_.hidden});
    at::Tensor h = boundaries.at(reads_).clone();
    const at::Tensor& lengths = boundaries.at("lengths");
    for (int64_t i = 0, begin = 0; i < lengths.numel(); ++i) {
      const int64_t length = lengths.const_data_ptr<int64_t>()[i];
      at::Tensor sequence = h.narrow(0, begin, length);
      Cache cache = cache_of(block, length);
      const int64_t most = cut_ > 0 ? cut_ : length;
      for (int64_t at = 0; at < length; at += most) {
        at::Tensor piece = sequence.narrow(0, at, std::min(most, length - at));
        Rows rows;
        rows.add(cache, piece.size(0));
        rows.place(*rotary_);
        piece.add_(block.attend(block.norm(piece, norm), rows, 0));
        block.feed_forward(piece);
      }
      begin += length;
    }
    return {{writes_, h}};
  }

 private:
  Cache cache_of(const Block& block, int64_t length) const {
    std::optional<Recurrent> fresh = block.fresh();
    if (!fresh) return Cache(1, shape_.kv_heads, shape_.head_dim, length, compute_);
    return Cache(0, shape_.kv_heads, shape_.head_dim, length, compute_, {std::move(*fresh)});
  }

  BlockShape shape_;
  std::string prefix_, reads_, writes_;
  Dtype compute_;
  int64_t cut_;
  std::shared_ptr<const model::Rotary> rotary_;
};

Tensors embed(const Tensors& parameters, const Tensors& boundaries) {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  const at::Tensor &table = parameters.at(kEmbedding), &ids = boundaries.at("ids");
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const int64_t id = ids.const_data_ptr<int64_t>()[i];
    SF_CHECK(id >= 0 && id < table.size(0), Exit::kData, "token id {} is outside the vocabulary of {}", id,
             table.size(0));
  }
  return {{"hidden.0", at::index_select(table, 0, ids)}};
}

}  // namespace

BlockShape block_shape(const arch::Decoder& d, int64_t layer) {
  return {.in = d.hidden,
          .hidden = d.hidden,
          .intermediate = d.intermediate,
          .heads = d.heads,
          .kv_heads = d.kv_heads,
          .head_dim = d.head_dim,
          .window = d.windows.empty() ? 0 : d.windows.at(static_cast<size_t>(layer)),
          .eps = d.rms_eps,
          .qkv_bias = d.qkv_bias,
          .o_bias = d.o_bias,
          .mlp_bias = d.mlp_bias,
          .qk_norm = d.qk_norm,
          .gated = d.gated_attention,
          .centred = d.centred_norms,
          .delta = d.recurs(layer) ? std::optional(d.delta) : std::nullopt,
          .experts = d.routes(layer) ? d.experts : arch::Experts{}};
}

std::vector<model::Segment> states_segments(const arch::Decoder& decoder, Dtype compute, const Seen& seen,
                                            int64_t cut) {
  SF_CHECK(decoder.wide.streams == 1, Exit::kConfig, "states of the {} family cannot be captured", decoder.family);
  const arch::ModelSpec spec = arch::describe_states(decoder, static_cast<bool>(seen));
  auto rotary = std::make_shared<const model::Rotary>(decoder.rope, decoder.rotary_dims(), decoder.max_positions);
  std::vector<model::Segment> segments;
  for (const arch::Segment& described : spec.segments)
    segments.push_back({described.name, described.parameters, described.reads, described.writes, {}, {}});
  segments.front().forward = embed;
  for (int64_t i = 0; i < decoder.layers; ++i)
    segments[static_cast<size_t>(i + 1)].forward = Layer(decoder, i, compute, cut, rotary);
  model::Segment& norm = segments[static_cast<size_t>(decoder.layers + 1)];
  norm.forward = [shape = block_shape(decoder, 0), reads = norm.reads.front()](const Tensors& p,
                                                                               const Tensors& b) -> Tensors {
    at::AutoDispatchBelowADInplaceOrView no_gradients;
    return {{"final_norm", normed(shape, b.at(reads), p.at(kNorm))}};
  };
  if (!seen) return segments;
  segments.back().forward = [compute, seen, head = segments.back().parameters.front()](const Tensors& p,
                                                                                       const Tensors& b) -> Tensors {
    at::AutoDispatchBelowADInplaceOrView no_gradients;
    const ops::Top1 best = ops::argmax_and_lse(seen(b.at("final_norm")), ops::PackedLinear::pack(p.at(head), compute));
    check_scores(best, "target");
    return {{"target_top1", best.top1}, {"target_lse", best.lse}};
  };
  return segments;
}

}  // namespace sf::gen
