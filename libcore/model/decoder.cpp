// SPDX-License-Identifier: Apache-2.0
#include "model/decoder.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/sigmoid.h>

#include <map>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/fault.h"
#include "model/experts.h"
#include "model/rotary.h"
#include "ops/attention.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/swiglu.h"
#include "tensor/device.h"

namespace sf::model {
namespace {

const at::Tensor& need(const Tensors& tensors, std::string_view name) {
  auto found = tensors.find(name);
  SF_CHECK(found != tensors.end(), Exit::kSoftware, "a segment wants tensor \"{}\", which it was not given", name);
  return found->second;
}

// [B,S] of nonzero = token -> the half-open range of tokens of each row.
void set_visible(const at::Tensor& mask, ops::AttentionOptions& options) {
  at::Tensor token = mask.ne(0).to(at::kLong);
  options.key_begin = token.argmax(1);
  options.key_end = options.key_begin.add(token.sum(1));
  int64_t inside = 0;
  at::Tensor begin = options.key_begin.contiguous(), end = options.key_end.contiguous(), flat = token.contiguous();
  for (int64_t b = 0; b < flat.size(0); ++b)
    for (int64_t j = begin.data_ptr<int64_t>()[b]; j < end.data_ptr<int64_t>()[b]; ++j)
      inside += flat.data_ptr<int64_t>()[b * flat.size(1) + j];
  SF_CHECK(inside == token.sum().item<int64_t>(), Exit::kData,
           "attention_mask has a gap: the tokens of a row must be one run, with padding before or after it");
}

std::string hidden_name(int64_t layer) {
  return "hidden." + std::to_string(layer);
}

// One block; owns what is constant about it.
class Layer {
 public:
  Layer(const arch::Decoder& decoder, int64_t index, std::shared_ptr<const Rotary> rotary,
        std::span<const arch::Adapter> adapters)
      : decoder_(decoder),
        index_(index),
        prefix_("model.layers." + std::to_string(index) + "."),
        window_(decoder.windows.empty() ? 0 : decoder.windows.at(static_cast<size_t>(index))),
        rotary_(std::move(rotary)) {
    for (const arch::Adapter& adapter : adapters)
      if (adapter.parameter.starts_with(prefix_)) adapters_.emplace(adapter.parameter.substr(prefix_.size()), adapter);
  }

  Tensors operator()(const Tensors& parameters, const Tensors& boundaries) const {
    const at::Tensor& in = need(boundaries, hidden_name(index_));
    at::Tensor x = ops::rms_norm(in, weight(parameters, "input_layernorm"), decoder_.rms_eps);
    at::Tensor h = in.add(attention(parameters, boundaries, x));
    x = ops::rms_norm(h, weight(parameters, "post_attention_layernorm"), decoder_.rms_eps);
    return {{hidden_name(index_ + 1),
             h.add(decoder_.routes(index_) ? experts(parameters, x) : mlp(parameters, x, "mlp."))}};
  }

 private:
  const at::Tensor& weight(const Tensors& parameters, std::string_view module) const {
    return need(parameters, prefix_ + std::string(module) + ".weight");
  }

  at::Tensor project(const Tensors& parameters, const at::Tensor& x, std::string_view module, bool biased) const {
    at::Tensor bias;
    if (biased) bias = need(parameters, prefix_ + std::string(module) + ".bias");
    at::Tensor y = ops::linear(x, weight(parameters, module), bias);
    auto found = adapters_.find(std::string(module) + ".weight");
    if (found == adapters_.end()) return y;
    const arch::Adapter& adapter = found->second;
    at::Tensor low = ops::linear(x, need(parameters, adapter.a));
    // Two operators: one that multiplies and adds rounds once in its vectors and twice at their ends.
    return y.add(
        ops::linear(low, need(parameters, adapter.b)).mul(fault("model.adapter_unscaled") ? 1 : adapter.scale));
  }

  // [B,S,n*hd] -> [B,n,S,hd], normed per head where the family does so.
  at::Tensor heads(const Tensors& parameters, const at::Tensor& projected, int64_t count, std::string_view norm) const {
    at::Tensor split = projected.view({projected.size(0), projected.size(1), count, decoder_.head_dim});
    if (decoder_.qk_norm && !norm.empty()) split = ops::rms_norm(split, weight(parameters, norm), decoder_.rms_eps);
    return split.transpose(1, 2);
  }

  at::Tensor attention(const Tensors& parameters, const Tensors& boundaries, const at::Tensor& x) const {
    const arch::Decoder& d = decoder_;
    at::Tensor q =
        heads(parameters, project(parameters, x, "self_attn.q_proj", d.qkv_bias), d.heads, "self_attn.q_norm");
    at::Tensor k =
        heads(parameters, project(parameters, x, "self_attn.k_proj", d.qkv_bias), d.kv_heads, "self_attn.k_norm");
    at::Tensor v = heads(parameters, project(parameters, x, "self_attn.v_proj", d.qkv_bias), d.kv_heads, "");
    const at::Tensor& positions = need(boundaries, "positions");
    const ops::RotaryTable table = rotary_->table_for(positions);
    q = ops::apply_rotary(q, table, positions);
    k = ops::apply_rotary(k, table, positions);
    ops::AttentionOptions options{.window = window_};
    if (auto mask = boundaries.find("attention_mask"); mask != boundaries.end()) set_visible(mask->second, options);
    at::Tensor mixed = ops::attention(q, k, v, options);
    at::Tensor flat = mixed.transpose(1, 2).reshape({x.size(0), x.size(1), d.heads * d.head_dim});
    return project(parameters, flat, "self_attn.o_proj", d.o_bias);
  }

  at::Tensor mlp(const Tensors& parameters, const at::Tensor& x, const std::string& at) const {
    at::Tensor gate = project(parameters, x, at + "gate_proj", decoder_.mlp_bias);
    at::Tensor up = project(parameters, x, at + "up_proj", decoder_.mlp_bias);
    return project(parameters, ops::swiglu(gate, up), at + "down_proj", decoder_.mlp_bias);
  }

  ExpertBank bank(const Tensors& parameters, const std::string& name) const {
    ExpertBank bank(need(parameters, prefix_ + name));
    if (auto found = adapters_.find(name); found != adapters_.end())
      bank.adapt(need(parameters, found->second.a), need(parameters, found->second.b), found->second);
    return bank;
  }

  at::Tensor experts(const Tensors& parameters, const at::Tensor& x) const {
    at::Tensor flat = x.reshape({-1, x.size(-1)});
    const ExpertBank gate_up = bank(parameters, "mlp.experts.gate_up_proj");
    const ExpertBank down = bank(parameters, "mlp.experts.down_proj");
    const int64_t width = decoder_.experts.width;
    auto one = [&](int64_t expert, const at::Tensor& rows) {
      at::Tensor both = gate_up.apply(expert, rows);
      return down.apply(expert, ops::swiglu(both.narrow(1, 0, width), both.narrow(1, width, width)));
    };
    at::Tensor mixed = mix_experts(flat, ops::linear(flat, weight(parameters, "mlp.gate")), one, decoder_.experts);
    if (decoder_.experts.shared_width > 0) {
      at::Tensor share = at::sigmoid(project(parameters, flat, "mlp.shared_expert_gate", false));
      mixed = mixed.add(mlp(parameters, flat, "mlp.shared_expert.").mul(share));
    }
    return mixed.view(x.sizes());
  }

  arch::Decoder decoder_;
  int64_t index_;
  std::string prefix_;
  int64_t window_;
  std::shared_ptr<const Rotary> rotary_;
  std::map<std::string, arch::Adapter, std::less<>> adapters_;  // by parameter within the layer: "mlp.up_proj.weight"
};

Tensors embed(const Tensors& parameters, const Tensors& boundaries) {
  const at::Tensor& table = need(parameters, "model.embed_tokens.weight");
  return {{hidden_name(0), at::embedding(table, tensor::beside(need(boundaries, "ids"), table))}};
}

Tensors head(const arch::Decoder& decoder, const Tensors& parameters, const Tensors& boundaries) {
  at::Tensor normed = ops::rms_norm(need(boundaries, hidden_name(decoder.layers)),
                                    need(parameters, "model.norm.weight"), decoder.rms_eps);
  // A tied head may come under either of its names.
  const bool named = parameters.contains("lm_head.weight") || !decoder.tied;
  const at::Tensor& table = need(parameters, named ? "lm_head.weight" : "model.embed_tokens.weight");
  return {{"final_norm", normed}, {"logits", ops::linear(normed, table)}};
}

}  // namespace

std::vector<Segment> decoder_segments(const arch::Decoder& decoder, std::span<const arch::Adapter> adapters) {
  arch::ModelSpec spec = arch::describe(decoder);
  if (!adapters.empty()) arch::add_adapters(spec, adapters);
  auto rotary = std::make_shared<const Rotary>(decoder.rope, decoder.head_dim, decoder.max_positions);
  SF_ASSERT(static_cast<int64_t>(spec.segments.size()) == decoder.layers + 2);
  std::vector<Segment> segments;
  for (const arch::Segment& described : spec.segments)
    segments.push_back({described.name, described.parameters, described.reads, described.writes, {}});
  segments.front().forward = embed;
  segments.back().forward = [decoder](const Tensors& p, const Tensors& b) { return head(decoder, p, b); };
  for (int64_t i = 0; i < decoder.layers; ++i) {
    Segment& segment = segments[static_cast<size_t>(i + 1)];
    SF_ASSERT(segment.name == "layers." + std::to_string(i));
    segment.forward = Layer(decoder, i, rotary, adapters);
  }
  return segments;
}

}  // namespace sf::model
