// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "arch/decoder.h"

namespace sf::arch {
namespace {

constexpr const char* kMatrixInit = "normal:0.02";
constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

class Builder {
 public:
  explicit Builder(const Decoder& decoder) : d_(decoder) {}

  ModelSpec build() {
    spec_.family = d_.family;
    open("embed", {"ids"}, {"hidden.0"});
    add(kEmbedding, {d_.vocab, d_.hidden}, kMatrixInit);
    for (int64_t i = 0; i < d_.layers; ++i) layer(i);
    head();
    spec_.buffers.push_back(rotary_buffer(d_.rope, d_.head_dim, d_.max_positions));
    return std::move(spec_);
  }

 private:
  void open(std::string name, std::vector<std::string> reads, std::vector<std::string> writes) {
    spec_.segments.push_back({std::move(name), {}, std::move(reads), std::move(writes), 0});
  }

  void add(std::string name, Shape shape, std::string init) {
    spec_.segments.back().parameters.push_back(name);
    spec_.parameters.push_back({std::move(name), std::move(shape), false, std::move(init)});
  }

  // y = x W^T (+ b): two operations for each weight and token.
  void linear(const std::string& name, int64_t out, int64_t in, bool bias) {
    add(name + ".weight", {out, in}, kMatrixInit);
    if (bias) add(name + ".bias", {out}, "zeros");
    spec_.segments.back().flops_per_token += 2.0 * static_cast<double>(out) * static_cast<double>(in);
  }

  void layer(int64_t i) {
    open(fmt::format("layers.{}", i), {fmt::format("hidden.{}", i), "positions"}, {fmt::format("hidden.{}", i + 1)});
    std::string at = fmt::format("model.layers.{}.", i);
    int64_t q = d_.heads * d_.head_dim, kv = d_.kv_heads * d_.head_dim;
    add(at + "input_layernorm.weight", {d_.hidden}, "ones");
    linear(at + "self_attn.q_proj", q, d_.hidden, d_.qkv_bias);
    linear(at + "self_attn.k_proj", kv, d_.hidden, d_.qkv_bias);
    linear(at + "self_attn.v_proj", kv, d_.hidden, d_.qkv_bias);
    if (d_.qk_norm) {
      add(at + "self_attn.q_norm.weight", {d_.head_dim}, "ones");
      add(at + "self_attn.k_norm.weight", {d_.head_dim}, "ones");
    }
    linear(at + "self_attn.o_proj", d_.hidden, q, d_.o_bias);
    add(at + "post_attention_layernorm.weight", {d_.hidden}, "ones");
    if (d_.routes(i)) return experts(at + "mlp.");
    mlp(at + "mlp.", d_.intermediate);
  }

  void mlp(const std::string& at, int64_t width) {
    linear(at + "gate_proj", width, d_.hidden, d_.mlp_bias);
    linear(at + "up_proj", width, d_.hidden, d_.mlp_bias);
    linear(at + "down_proj", d_.hidden, width, d_.mlp_bias);
  }

  // A router, the experts' fused matrices (gate above up), and what every token passes.
  void experts(const std::string& at) {
    const Experts& e = d_.experts;
    linear(at + "gate", e.count, d_.hidden, false);
    add(at + "experts.gate_up_proj", {e.count, 2 * e.width, d_.hidden}, kMatrixInit);
    add(at + "experts.down_proj", {e.count, d_.hidden, e.width}, kMatrixInit);
    double one = 2.0 * 3.0 * static_cast<double>(e.width) * static_cast<double>(d_.hidden);
    spec_.segments.back().flops_per_token += one * static_cast<double>(e.chosen);
    if (e.shared_width == 0) return;
    mlp(at + "shared_expert.", e.shared_width);
    linear(at + "shared_expert_gate", 1, d_.hidden, false);
  }

  void head() {
    open("head", {fmt::format("hidden.{}", d_.layers)}, {"final_norm", "logits"});
    add("model.norm.weight", {d_.hidden}, "ones");
    if (!d_.tied) return linear("lm_head", d_.vocab, d_.hidden, false);
    spec_.aliases.push_back({kHead, kEmbedding});
    spec_.segments.back().parameters.push_back(kHead);
    spec_.segments.back().flops_per_token += 2.0 * static_cast<double>(d_.vocab) * static_cast<double>(d_.hidden);
  }

  const Decoder& d_;
  ModelSpec spec_;
};

}  // namespace

ModelSpec describe(const Decoder& decoder) {
  return Builder(decoder).build();
}

ModelSpec describe_training(const Decoder& decoder, std::span<const Adapter> adapters) {
  ModelSpec spec = describe(decoder);
  for (Parameter& parameter : spec.parameters) parameter.trainable = true;
  if (!adapters.empty()) add_adapters(spec, adapters);
  Segment& last = spec.segments.back();
  last.reads = {fmt::format("hidden.{}", decoder.layers), "labels", "label_weight"};
  last.writes = {"loss", "sums"};
  return spec;
}

}  // namespace sf::arch
