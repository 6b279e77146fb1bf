// SPDX-License-Identifier: Apache-2.0
#include "model/decoder.h"

#include <ATen/ops/embedding.h>

#include <algorithm>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/fault.h"
#include "model/block_parts.h"
#include "model/ngrams.h"
#include "model/wide_residual.h"
#include "ops/linear.h"
#include "tensor/device.h"

namespace sf::model {
namespace {

std::string hidden_name(int64_t layer) {
  return "hidden." + std::to_string(layer);
}

bool has_ngrams(const arch::Decoder& decoder, int64_t layer) {
  const std::vector<int64_t>& layers = decoder.ngrams.layers;
  return std::find(layers.begin(), layers.end(), layer) != layers.end();
}

// One block; owns what is constant about it.
class Layer {
 public:
  Layer(const arch::Decoder& decoder, int64_t index, const std::shared_ptr<const Rotary>& rotary,
        std::span<const arch::Adapter> adapters)
      : decoder_(decoder),
        index_(index),
        names_("model.layers." + std::to_string(index) + ".", adapters),
        plain_("model.layers." + std::to_string(index) + ".", {}),
        ngrams_(has_ngrams(decoder, index) ? ngram_part(decoder, index) : Part()),
        mixer_(decoder.recurs(index) ? delta_net_part(decoder) : attention_part(decoder, index, rotary)),
        feed_forward_(feed_forward_part(decoder, index)) {}

  Tensors operator()(const Tensors& parameters, const Tensors& boundaries) const {
    const Given given(are_off(boundaries) ? plain_ : names_, parameters, boundaries);
    at::Tensor h = given.boundary(hidden_name(index_));
    if (ngrams_) h = h.add(ngrams_(given, h));
    h = through(decoder_, given, h, mixer_, "attn");
    return {{hidden_name(index_ + 1), through(decoder_, given, h, feed_forward_, "mlp")}};
  }

 private:
  static bool are_off(const Tensors& boundaries) {
    auto found = boundaries.find("adapters_off");
    return found != boundaries.end() && tensor::on_host(found->second).const_data_ptr<int64_t>()[0] != 0 &&
           !fault("model.adapters_stay");
  }

  arch::Decoder decoder_;
  int64_t index_;
  BlockNames names_, plain_;            // plain: without adapters
  Part ngrams_, mixer_, feed_forward_;  // the first may be empty
};

Tensors embed(const arch::Decoder& decoder, const Tensors& parameters, const Tensors& boundaries) {
  const at::Tensor& table = need(parameters, "model.embed_tokens.weight");
  at::Tensor rows = at::embedding(table, tensor::beside(need(boundaries, "ids"), table));
  return {{hidden_name(0), as_streams(decoder, rows)}};
}

Tensors head(const arch::Decoder& decoder, const Tensors& parameters, const Tensors& boundaries) {
  at::Tensor normed = final_state(decoder, parameters, need(boundaries, hidden_name(decoder.layers)));
  // A tied head may come under either of its names.
  const bool named = parameters.contains("lm_head.weight") || !decoder.tied;
  const at::Tensor& table = need(parameters, named ? "lm_head.weight" : "model.embed_tokens.weight");
  return {{"final_norm", normed}, {"logits", ops::linear(normed, table)}};
}

}  // namespace

std::vector<Segment> decoder_segments(const arch::Decoder& decoder, std::span<const arch::Adapter> adapters) {
  arch::ModelSpec spec = arch::describe(decoder);
  if (!adapters.empty()) arch::add_adapters(spec, adapters);
  auto rotary = std::make_shared<const Rotary>(decoder.rope, decoder.rotary_dims(), decoder.max_positions);
  std::vector<Segment> segments;
  int64_t layer = 0;
  for (const arch::Segment& described : spec.segments) {
    Segment segment{described.name, described.parameters, described.reads, described.writes, {}};
    if (described.name == "embed")
      segment.forward = [decoder](const Tensors& p, const Tensors& b) { return embed(decoder, p, b); };
    else if (described.name == "ngrams")
      segment = ngrams_segment(decoder, described);
    else if (described.name.starts_with("ngrams."))
      segment = ngram_table_segment(described);
    else if (described.name == "head")
      segment.forward = [decoder](const Tensors& p, const Tensors& b) { return head(decoder, p, b); };
    else
      segment.forward = Layer(decoder, layer++, rotary, adapters);
    segments.push_back(std::move(segment));
  }
  SF_ASSERT(layer == decoder.layers);
  return segments;
}

}  // namespace sf::model
