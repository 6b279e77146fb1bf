// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "arch/decoder.h"

namespace sf::arch {
namespace {

constexpr const char* kMatrixInit = "normal:0.02";
constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

class Builder {
 public:
  explicit Builder(const Decoder& decoder) : d_(decoder), wide_(decoder.wide.streams * decoder.hidden) {}

  ModelSpec build() {
    spec_.family = d_.family;
    open("embed", {"ids"}, {"hidden.0"});
    add(kEmbedding, {d_.vocab, d_.hidden}, kMatrixInit);
    if (!d_.ngrams.layers.empty()) ngrams();
    for (int64_t i = 0; i < d_.layers; ++i) layer(i);
    head();
    spec_.buffers.push_back(rotary_buffer(d_.rope, d_.rotary_dims(), d_.max_positions));
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
  void linear(const std::string& name, int64_t out, int64_t in, bool bias = false) {
    add(name + ".weight", {out, in}, kMatrixInit);
    if (bias) add(name + ".bias", {out}, "zeros");
    spec_.segments.back().flops_per_token += 2.0 * static_cast<double>(out) * static_cast<double>(in);
  }

  void norm(const std::string& name, int64_t width) {
    add(name + ".weight", {width}, d_.centred_norms ? "zeros" : "ones");
  }

  // Which rows of each table the n-grams of a sequence find, and each table's look-up, so that it may be done where the
  // table lives.
  void ngrams() {
    const Ngrams& g = d_.ngrams;
    std::vector<std::string> found;
    for (int64_t i : g.layers) found.push_back(fmt::format("ngram_ids.{}", i));
    open("ngrams", {"ids"}, std::move(found));
    for (size_t place = 0; place < g.layers.size(); ++place) {
      const int64_t i = g.layers[place];
      const std::string table = fmt::format("model.layers.{}.ple.ple_embedding.ngram_embedding.weight", i);
      open(fmt::format("ngrams.{}", i), {fmt::format("ngram_ids.{}", i)}, {fmt::format("ngram_rows.{}", i)});
      add(table, {g.hashes[place].rows, g.width / g.all_heads()}, kMatrixInit);
      spec_.tables.push_back({.parameter = table, .looked_up = true});
    }
  }

  bool has_ngrams(int64_t i) const {
    return std::find(d_.ngrams.layers.begin(), d_.ngrams.layers.end(), i) != d_.ngrams.layers.end();
  }

  void layer(int64_t i) {
    std::vector<std::string> reads{fmt::format("hidden.{}", i), "positions"};
    if (has_ngrams(i)) reads.push_back(fmt::format("ngram_rows.{}", i));
    open(fmt::format("layers.{}", i), std::move(reads), {fmt::format("hidden.{}", i + 1)});
    const std::string at = fmt::format("model.layers.{}.", i);
    if (has_ngrams(i)) ngram_mix(at + "ple.");
    before(at, "input_layernorm", "attn_hyper_connection");
    if (d_.recurs(i))
      delta_net(at + "linear_attn.");
    else
      attention(at + "self_attn.");
    before(at, "post_attention_layernorm", "mlp_hyper_connection");
    if (d_.routes(i)) return experts(at + "mlp.");
    mlp(at + "mlp.", d_.intermediate);
  }

  // What a part of a layer reads the residual through.
  void before(const std::string& at, const char* normed, const char* mixed) {
    if (d_.wide.streams == 1) return norm(at + normed, d_.hidden);
    mixer(at + mixed + ".");
    linear(at + mixed + ".block_inject_weight", d_.wide.streams, wide_);
  }

  void mixer(const std::string& at) {
    norm(at + "hc_norm", wide_);
    linear(at + "input_mix_weight_down", d_.wide.rank, wide_);
    linear(at + "input_mix_weight_up", wide_, d_.wide.rank);
  }

  void attention(const std::string& at) {
    const int64_t q = d_.heads * d_.head_dim, kv = d_.kv_heads * d_.head_dim;
    linear(at + "q_proj", d_.gated_attention ? 2 * q : q, d_.hidden, d_.qkv_bias);
    linear(at + "k_proj", kv, d_.hidden, d_.qkv_bias);
    linear(at + "v_proj", kv, d_.hidden, d_.qkv_bias);
    if (d_.qk_norm) {
      norm(at + "q_norm", d_.head_dim);
      norm(at + "k_norm", d_.head_dim);
    }
    linear(at + "o_proj", d_.hidden, q, d_.o_bias);
    if (d_.indexer.heads == 0) return;
    linear(at + "indexer.index_qk_proj", (d_.indexer.heads + 1) * d_.indexer.dim, d_.hidden);
    norm(at + "indexer.q_layernorm", d_.indexer.dim);
    norm(at + "indexer.k_layernorm", d_.indexer.dim);
  }

  void delta_net(const std::string& at) {
    const DeltaNet& net = d_.delta;
    if (net.grouped) {
      linear(at + "in_proj_qkvz", net.channels() + net.values(), d_.hidden);
      linear(at + "in_proj_ba", 2 * net.value_heads, d_.hidden);
    } else {
      linear(at + "in_proj_qkv", net.channels(), d_.hidden);
      linear(at + "in_proj_z", net.values(), d_.hidden);
      linear(at + "in_proj_b", net.value_heads, d_.hidden);
      linear(at + "in_proj_a", net.value_heads, d_.hidden);
    }
    add(at + "conv1d.weight", {net.channels(), 1, net.taps}, kMatrixInit);
    add(at + "A_log", {net.value_heads}, "zeros");
    add(at + "dt_bias", {net.value_heads}, "ones");
    add(at + "norm.weight", {net.value_dim}, "ones");
    linear(at + "out_proj", d_.hidden, net.values());
  }

  void ngram_mix(const std::string& at) {
    linear(at + "key_proj", wide_, d_.ngrams.width);
    linear(at + "value_proj", d_.hidden, d_.ngrams.width);
    for (const char* name : {"norm_key", "norm_query", "norm_conv"}) norm(at + name, wide_);
    add(at + "conv1d.weight", {wide_, 1, d_.ngrams.taps}, kMatrixInit);
  }

  void mlp(const std::string& at, int64_t width) {
    linear(at + "gate_proj", width, d_.hidden, d_.mlp_bias);
    linear(at + "up_proj", width, d_.hidden, d_.mlp_bias);
    linear(at + "down_proj", d_.hidden, width, d_.mlp_bias);
  }

  // A router, the experts' fused matrices (gate above up), and what every token passes.
  void experts(const std::string& at) {
    const Experts& e = d_.experts;
    linear(at + "gate", e.count, d_.hidden);
    add(at + "experts.gate_up_proj", {e.count, 2 * e.width, d_.hidden}, kMatrixInit);
    add(at + "experts.down_proj", {e.count, d_.hidden, e.width}, kMatrixInit);
    double one = 2.0 * 3.0 * static_cast<double>(e.width) * static_cast<double>(d_.hidden);
    spec_.segments.back().flops_per_token += one * static_cast<double>(e.chosen);
    if (e.shared_width == 0) return;
    mlp(at + "shared_expert.", e.shared_width);
    linear(at + "shared_expert_gate", 1, d_.hidden);
  }

  void head() {
    open("head", {fmt::format("hidden.{}", d_.layers)}, {"final_norm", "logits"});
    if (d_.wide.streams == 1)
      norm("model.norm", d_.hidden);
    else
      mixer("model.hyper_connection_mixer.");
    if (!d_.tied) return linear("lm_head", d_.vocab, d_.hidden);
    spec_.aliases.push_back({kHead, kEmbedding});
    spec_.segments.back().parameters.push_back(kHead);
    spec_.segments.back().flops_per_token += 2.0 * static_cast<double>(d_.vocab) * static_cast<double>(d_.hidden);
  }

  const Decoder& d_;
  int64_t wide_;  // of the residual
  ModelSpec spec_;
};

bool is_table(const ModelSpec& spec, const std::string& name) {
  return std::any_of(spec.tables.begin(), spec.tables.end(), [&](const Table& t) { return t.parameter == name; });
}

}  // namespace

ModelSpec describe(const Decoder& decoder) {
  return Builder(decoder).build();
}

ModelSpec describe_training(const Decoder& decoder, std::span<const Adapter> adapters) {
  ModelSpec spec = describe(decoder);
  for (Parameter& parameter : spec.parameters) parameter.trainable = !is_table(spec, parameter.name);
  if (!adapters.empty()) add_adapters(spec, adapters);
  Segment& last = spec.segments.back();
  last.reads = {fmt::format("hidden.{}", decoder.layers), "labels", "label_weight"};
  last.writes = {"loss", "sums"};
  return spec;
}

}  // namespace sf::arch
