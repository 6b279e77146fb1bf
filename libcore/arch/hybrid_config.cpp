// SPDX-License-Identifier: Apache-2.0
#include "arch/hybrid_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "arch/config_check.h"
#include "arch/experts_config.h"
#include "base/error.h"

namespace sf::arch {
namespace {

constexpr std::string_view kNext = "qwen3_next", kExp = "qwen4_exp_text", kLinear = "linear_attention";
constexpr std::array kFamilies{kNext, std::string_view("qwen3_5_text"), std::string_view("qwen3_5_moe_text"), kExp};
constexpr int64_t kMostStreams = 64, kMostOrders = 16, kMostHeads = 4096;
constexpr int64_t kMostElements = int64_t{1} << 52;  // of a table

// A config that is silent gives every so many-th layer attention.
std::vector<bool> delta_layers(const Json& config, const Decoder& d) {
  std::vector<bool> delta;
  const Json* types = config.find("layer_types");
  if (!types || types->is_null()) {
    const int64_t interval = positive(config, "full_attention_interval", 4);
    for (int64_t i = 0; i < d.layers; ++i) delta.push_back((i + 1) % interval != 0);
    return delta;
  }
  const Json::Array& list = types->as_array();
  SF_CHECK(std::ssize(list) == d.layers, Exit::kConfig, "config.json: layer_types has {} entries for {} layers",
           list.size(), d.layers);
  std::vector<std::string_view> known{kLinear, "full_attention"};
  if (d.family == kExp)
    known.insert(known.end(), {"indexed_attention", "qwen_sparse_attention", "deepseek_sparse_attention"});
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string& type = list[i].as_string();
    SF_CHECK(std::find(known.begin(), known.end(), type) != known.end(), Exit::kConfig,
             "config.json: layer_types[{}] = \"{}\" is unknown in the {} family; known: {}", i, type, d.family,
             fmt::join(known, ", "));
    delta.push_back(type == kLinear);
  }
  return delta;
}

bool sigmoid_of(const Json& config, std::string_view family) {
  if (family != kExp) return false;
  const std::string gate = config.get_string("output_gate_type", config.get_string("hidden_act", "silu"));
  SF_CHECK(gate == "silu" || gate == "sigmoid", Exit::kConfig,
           "config.json: output_gate_type \"{}\" is not supported, only \"silu\" and \"sigmoid\"", gate);
  return gate == "sigmoid";
}

DeltaNet delta_of(const Json& config, const Decoder& d) {
  DeltaNet net{.layers = delta_layers(config, d)};
  net.key_heads = size_of_config(config, "linear_num_key_heads", 1 << 16);
  net.value_heads = size_of_config(config, "linear_num_value_heads", 1 << 16);
  net.key_dim = size_of_config(config, "linear_key_head_dim", 1 << 16);
  net.value_dim = size_of_config(config, "linear_value_head_dim", 1 << 16);
  net.taps = size_of_config(config, "linear_conv_kernel_dim", 1 << 8);
  net.grouped = d.family == kNext;
  net.sigmoid_gate = sigmoid_of(config, d.family);
  SF_CHECK(net.value_heads % net.key_heads == 0, Exit::kConfig,
           "config.json: linear_num_value_heads = {} is not a multiple of linear_num_key_heads = {}", net.value_heads,
           net.key_heads);
  SF_CHECK(net.channels() + net.values() <= kMaxExtent, Exit::kConfig,
           "config.json: linear attention of {} channels is out of range, wanted at most {}",
           net.channels() + net.values(), kMaxExtent);
  return net;
}

Experts experts_of(const Json& config, const Decoder& d) {
  Experts e;
  if (d.family == "qwen3_5_text") return e;
  e.count = size_of_config(config, config.contains("num_experts") ? "num_experts" : "num_local_experts", 1 << 16);
  e.chosen = size_of_config(config, "num_experts_per_tok", e.count);
  e.width = size_of_config(config, "moe_intermediate_size");
  e.shared_width = size_of_config(config, "shared_expert_intermediate_size");
  e.normalise = d.family == "qwen3_5_moe_text" || config.get_bool("norm_topk_prob", true);
  e.layers.assign(static_cast<size_t>(d.layers), true);
  if (d.family == kNext) e.layers = sparse_layers(config, d.layers);
  return e;
}

Indexer indexer_of(const Json& config, const Decoder& d) {
  const char* keys[] = {"indexer_n_heads", "indexer_kv_heads", "indexer_head_dim", "indexer_budget",
                        "indexer_compress_ratio"};
  auto stated = [&](const char* key) { return config.find(key) && !config.find(key)->is_null(); };
  if (std::none_of(std::begin(keys), std::end(keys), stated)) return {};
  const int64_t key_heads = size_of_config(config, "indexer_kv_heads");
  SF_CHECK(key_heads == 1, Exit::kConfig, "config.json: indexer_kv_heads = {} is not supported, only 1", key_heads);
  Indexer indexer;
  indexer.heads = size_of_config(config, "indexer_n_heads", 1 << 10);
  indexer.dim = size_of_config(config, "indexer_head_dim", 1 << 12);
  indexer.budget = size_of_config(config, "indexer_budget", int64_t{1} << 40);
  indexer.ratio = size_of_config(config, "indexer_compress_ratio", int64_t{1} << 20);
  SF_CHECK(indexer.budget % indexer.ratio == 0, Exit::kConfig,
           "config.json: indexer_budget = {} is not a multiple of indexer_compress_ratio = {}", indexer.budget,
           indexer.ratio);
  SF_CHECK(d.rotary_dims() <= indexer.dim, Exit::kConfig,
           "config.json: {} rotary dimensions do not fit indexer_head_dim = {}", d.rotary_dims(), indexer.dim);
  return indexer;
}

void check_ngrams(const Ngrams& g, const Decoder& d) {
  SF_CHECK(g.longest >= 2, Exit::kConfig, "config.json: ngram_size = {} is out of range, wanted 2 to {}", g.longest,
           kMostOrders);
  SF_CHECK(g.all_heads() * std::ssize(g.layers) <= kMostHeads, Exit::kConfig,
           "config.json: {} layers of {} n-gram heads are out of range, wanted {} heads in all at most",
           g.layers.size(), g.all_heads(), kMostHeads);
  SF_CHECK(g.width % g.all_heads() == 0, Exit::kConfig, "config.json: ple_embed_dim = {} is not a multiple of {} heads",
           g.width, g.all_heads());
  for (int64_t layer : g.layers)
    SF_CHECK(layer >= 0 && layer < d.layers && d.recurs(layer), Exit::kConfig,
             "config.json: ple_layer_ids names {}, wanted the number, from 1, of a layer of linear_attention",
             layer + 1);
  SF_CHECK(!d.eos.empty(), Exit::kConfig, "config.json: ple_layer_ids needs an eos_token_id");
}

Ngrams ngrams_of(const Json& config, const Decoder& d) {
  Ngrams g;
  const Json* layers = config.find("ple_layer_ids");
  if (!layers || layers->is_null() || layers->as_array().empty()) return g;
  for (const Json& layer : layers->as_array()) g.layers.push_back(layer.as_int() - 1);
  std::sort(g.layers.begin(), g.layers.end());
  g.layers.erase(std::unique(g.layers.begin(), g.layers.end()), g.layers.end());
  g.longest = positive(config, "ngram_size", 3, kMostOrders);
  g.heads = positive(config, "heads_per_ngram", 8, 1 << 10);
  g.width = positive(config, "ple_embed_dim", d.hidden);
  g.taps = positive(config, "ple_conv_kernel_size", 4, 1 << 8);
  g.base = positive(config, "ngram_vocab_size_base", 20'000'000, int64_t{1} << 32);
  g.divisor = positive(config, "make_ngram_vocab_size_divisible_by", 128, int64_t{1} << 32);
  g.seed = config.get_int("seed", 1234);
  g.parts = positive(config, "split_ngram_parts", 512, 1 << 20);
  check_ngrams(g, d);
  for (int64_t place = 0; place < std::ssize(g.layers); ++place) {
    g.hashes.push_back(ngram_hash(g, place, d.vocab));
    SF_CHECK(g.hashes.back().rows <= kMostElements / g.width, Exit::kConfig,
             "config.json: a table of {} n-grams is out of range: ngram_vocab_size_base = {}", g.hashes.back().rows,
             g.base);
  }
  g.end = d.eos.front();
  return g;
}

}  // namespace

bool is_hybrid(std::string_view family) {
  return std::find(kFamilies.begin(), kFamilies.end(), family) != kFamilies.end();
}

RopeForm rope_form(std::string_view family) {
  if (!is_hybrid(family)) return {};
  RopeForm form{.partial = family == kExp ? 1.0 : 0.25};
  if (family != kNext) form.sections = {11, 11, 10};
  return form;
}

void read_hybrid(const Json& config, Decoder& d) {
  d.gated_attention = d.centred_norms = true;
  d.delta = delta_of(config, d);
  d.experts = experts_of(config, d);
  if (d.family != kExp) return;
  d.wide.streams = positive(config, "hc_count", 4, kMostStreams);
  d.wide.rank = positive(config, "hc_lowrank", 320);
  SF_CHECK(d.wide.streams * d.hidden <= kMaxExtent, Exit::kConfig,
           "config.json: hc_count = {} streams of hidden_size = {} are out of range, wanted at most {} in all",
           d.wide.streams, d.hidden, kMaxExtent);
  SF_CHECK(d.wide.streams > 1, Exit::kConfig, "config.json: hc_count = 1 is out of range, wanted 2 to {}",
           kMostStreams);
  d.indexer = indexer_of(config, d);
  d.ngrams = ngrams_of(config, d);
}

namespace {

void exp_to_config(const Decoder& d, Json& config) {
  config.set("hc_count", d.wide.streams).set("hc_lowrank", d.wide.rank);
  config.set("output_gate_type", d.delta.sigmoid_gate ? "sigmoid" : "silu");
  const Indexer& x = d.indexer;
  auto or_null = [](int64_t value) { return value > 0 ? Json(value) : Json(); };
  config.set("indexer_n_heads", or_null(x.heads)).set("indexer_kv_heads", or_null(x.heads > 0));
  config.set("indexer_head_dim", or_null(x.dim)).set("indexer_budget", or_null(x.budget));
  config.set("indexer_compress_ratio", or_null(x.ratio));
  Json layers = Json::array();
  for (int64_t layer : d.ngrams.layers) layers.push(layer + 1);
  config.set("ple_layer_ids", std::move(layers));
  const Ngrams& g = d.ngrams;
  if (g.layers.empty()) return;
  config.set("ngram_size", g.longest).set("heads_per_ngram", g.heads).set("ple_embed_dim", g.width);
  config.set("ple_conv_kernel_size", g.taps).set("ngram_vocab_size_base", g.base).set("seed", g.seed);
  config.set("make_ngram_vocab_size_divisible_by", g.divisor).set("split_ngram_parts", g.parts);
}

}  // namespace

void hybrid_to_config(const Decoder& d, Json& config) {
  const DeltaNet& net = d.delta;
  config.set("linear_num_key_heads", net.key_heads).set("linear_num_value_heads", net.value_heads);
  config.set("linear_key_head_dim", net.key_dim).set("linear_value_head_dim", net.value_dim);
  config.set("linear_conv_kernel_dim", net.taps).set("attention_bias", d.o_bias);
  Json types = Json::array();
  const char* attention = d.family == kExp ? "indexed_attention" : "full_attention";
  for (bool delta : net.layers) types.push(delta ? std::string(kLinear) : attention);
  config.set("layer_types", std::move(types));
  const Experts& e = d.experts;
  if (e.count > 0) {
    config.set("num_experts", e.count).set("num_experts_per_tok", e.chosen).set("moe_intermediate_size", e.width);
    config.set("shared_expert_intermediate_size", e.shared_width).set("norm_topk_prob", e.normalise);
  }
  if (d.family == kNext) sparse_to_config(e.layers, config);
  if (d.family == kExp) exp_to_config(d, config);
}

}  // namespace sf::arch
