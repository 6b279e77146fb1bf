// SPDX-License-Identifier: Apache-2.0
#include "arch/dflash.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "arch/config_check.h"
#include "base/error.h"

namespace sf::arch {
namespace {

constexpr std::string_view kArchitecture = "DFlashDraftModel";
constexpr const char* kMatrixInit = "normal:0.02";

void check_kind(const Json& config) {
  const Json* list = config.find("architectures");
  std::string name = list && list->is_array() && !list->as_array().empty() ? list->as_array()[0].as_string() : "";
  SF_CHECK(name.empty() || name == kArchitecture, Exit::kConfig,
           "config.json: architecture \"{}\" is not a DFlash draft, wanted \"{}\"", name, kArchitecture);
  std::string act = config.get_string("hidden_act", "silu");
  SF_CHECK(act == "silu", Exit::kConfig, "config.json: hidden_act \"{}\" is not supported, only \"silu\"", act);
}

void read_geometry(const Json& config, Dflash& d) {
  d.vocab = positive(config, "vocab_size", 151936);
  d.hidden = positive(config, "hidden_size", 4096);
  d.intermediate = positive(config, "intermediate_size", 22016);
  d.layers = positive(config, "num_hidden_layers", 5, 4096);
  d.heads = positive(config, "num_attention_heads", 32, 1 << 16);
  d.kv_heads = positive(config, "num_key_value_heads", d.heads, 1 << 16);
  d.head_dim = positive(config, "head_dim", 128, 1 << 16);
  d.max_positions = positive(config, "max_position_embeddings", 32768, int64_t{1} << 40);
  SF_CHECK(d.heads % d.kv_heads == 0, Exit::kConfig,
           "config.json: num_attention_heads = {} is not a multiple of num_key_value_heads = {}", d.heads, d.kv_heads);
  SF_CHECK(d.heads * d.head_dim <= kMaxExtent && d.head_dim % 2 == 0, Exit::kConfig,
           "config.json: head_dim = {} with num_attention_heads = {}: wanted an even number, the product at most {}",
           d.head_dim, d.heads, kMaxExtent);
}

void read_capture(const Json& config, Dflash& d) {
  d.target_layers = config.contains("num_target_layers") ? positive(config, "num_target_layers", 1, 4096) : 0;
  const Json* own = config.find("dflash_config");
  if (own && !own->is_null()) d.mask_token = own->get_int("mask_token_id", -1);
  SF_CHECK(d.mask_token >= -1 && d.mask_token < d.vocab, Exit::kConfig,
           "config.json: mask_token_id = {} is out of range, the vocabulary ends at {}", d.mask_token, d.vocab);
  const Json* ids = own ? own->find("target_layer_ids") : nullptr;
  if (!ids || ids->is_null()) {
    if (d.target_layers > 0) d.capture_layers = dflash_capture_layers(d.target_layers, d.layers);
    return;
  }
  for (const Json& item : ids->as_array()) {
    int64_t id = item.as_int();
    SF_CHECK(id >= 0 && id < (d.target_layers > 0 ? d.target_layers : 4096), Exit::kConfig,
             "config.json: target_layer_ids holds {}, out of range for a target of {} layers", id, d.target_layers);
    d.capture_layers.push_back(id + 1);
  }
  SF_CHECK(!d.capture_layers.empty(), Exit::kConfig, "config.json: target_layer_ids is empty");
}

void read_windows(const Json& config, Dflash& d) {
  d.windows.assign(static_cast<size_t>(d.layers), 0);
  const Json* types = config.find("layer_types");
  if (!types || types->is_null()) return;
  const Json::Array& list = types->as_array();
  SF_CHECK(list.size() == d.windows.size(), Exit::kConfig, "config.json: layer_types has {} entries for {} layers",
           list.size(), d.windows.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string& type = list[i].as_string();
    SF_CHECK(type == "full_attention" || type == "sliding_attention", Exit::kConfig,
             "config.json: layer_types[{}] = \"{}\" is unknown; known: full_attention, sliding_attention", i, type);
    if (type == "sliding_attention") d.windows[i] = positive(config, "sliding_window", 4096, int64_t{1} << 40);
  }
}

class Builder {
 public:
  Builder(const Dflash& draft, ModelSpec& spec) : d_(draft), spec_(spec) {}

  void open(std::string name, std::vector<std::string> reads, std::vector<std::string> writes) {
    spec_.segments.push_back({std::move(name), {}, std::move(reads), std::move(writes), 0});
  }
  void add(std::string name, Shape shape, std::string init, bool trainable = true) {
    spec_.segments.back().parameters.push_back(name);
    spec_.parameters.push_back({std::move(name), std::move(shape), trainable, std::move(init)});
  }
  void linear(const std::string& name, int64_t out, int64_t in, bool bias) {
    add(name + ".weight", {out, in}, kMatrixInit);
    if (bias) add(name + ".bias", {out}, "zeros");
    spec_.segments.back().flops_per_token += 2.0 * static_cast<double>(out) * static_cast<double>(in);
  }
  void context() {
    open("context", {"hidden_states", "context_rows"}, {"context"});
    auto captured = static_cast<int64_t>(d_.capture_layers.size());
    linear("fc", d_.hidden, std::max<int64_t>(captured, 1) * d_.hidden, false);
    add("hidden_norm.weight", {d_.hidden}, "ones");
  }
  void layer(int64_t i) {
    open(fmt::format("layers.{}", i), {fmt::format("hidden.{}", i), "context", "blocks"},
         {fmt::format("hidden.{}", i + 1)});
    std::string at = fmt::format("layers.{}.", i);
    int64_t q = d_.heads * d_.head_dim, kv = d_.kv_heads * d_.head_dim;
    add(at + "input_layernorm.weight", {d_.hidden}, "ones");
    linear(at + "self_attn.q_proj", q, d_.hidden, d_.bias);
    linear(at + "self_attn.k_proj", kv, d_.hidden, d_.bias);
    linear(at + "self_attn.v_proj", kv, d_.hidden, d_.bias);
    add(at + "self_attn.q_norm.weight", {d_.head_dim}, "ones");
    add(at + "self_attn.k_norm.weight", {d_.head_dim}, "ones");
    linear(at + "self_attn.o_proj", d_.hidden, q, d_.bias);
    add(at + "post_attention_layernorm.weight", {d_.hidden}, "ones");
    linear(at + "mlp.gate_proj", d_.intermediate, d_.hidden, false);
    linear(at + "mlp.up_proj", d_.intermediate, d_.hidden, false);
    linear(at + "mlp.down_proj", d_.hidden, d_.intermediate, false);
  }

 private:
  const Dflash& d_;
  ModelSpec& spec_;
};

}  // namespace

bool is_dflash(const Json& config) {
  const Json* list = config.is_object() ? config.find("architectures") : nullptr;
  return list && list->is_array() && list->as_array().size() == 1 && list->as_array()[0].is_string() &&
         list->as_array()[0].as_string() == kArchitecture;
}

Dflash dflash_from_config(const Json& config) {
  SF_CHECK(config.is_object(), Exit::kData, "config.json: wanted an object, found {}", config.type_name());
  check_kind(config);
  Dflash d;
  read_geometry(config, d);
  d.block = positive(config, "block_size", 16, 1024);
  SF_CHECK(d.block >= 2, Exit::kConfig, "config.json: block_size = {}, wanted at least 2", d.block);
  d.rms_eps = in_range(config.get_double("rms_norm_eps", 1e-6), "rms_norm_eps", 0, 1);
  d.bias = config.get_bool("attention_bias", false);
  d.rope = rope_from_config(config, d.max_positions);
  read_windows(config, d);
  read_capture(config, d);
  d.stored = dtype_of_config(config);
  d.bos = bos_of_config(config, -1, d.vocab);
  d.eos = eos_of_config(config, -1, d.vocab);
  return d;
}

Json dflash_to_config(const Dflash& d) {
  Json config = Json::object();
  config.set("architectures", Json(Json::Array{Json(kArchitecture)})).set("model_type", "qwen3");
  config.set("auto_map", Json::object().set("AutoModel", "dflash.DFlashDraftModel"));
  config.set("vocab_size", d.vocab).set("hidden_size", d.hidden).set("intermediate_size", d.intermediate);
  config.set("num_hidden_layers", d.layers).set("num_attention_heads", d.heads).set("num_key_value_heads", d.kv_heads);
  config.set("head_dim", d.head_dim).set("max_position_embeddings", d.max_positions);
  config.set("rms_norm_eps", d.rms_eps).set("hidden_act", "silu").set("attention_bias", d.bias);
  config.set("block_size", d.block).set("tie_word_embeddings", false);
  if (d.target_layers > 0) config.set("num_target_layers", d.target_layers);
  Json own = Json::object(), ids = Json::array(), types = Json::array();
  if (d.mask_token >= 0) own.set("mask_token_id", d.mask_token);
  for (int64_t layer : d.capture_layers) {
    SF_CHECK(layer >= 1, Exit::kConfig, "capture layer {} (the embedding) has no number in a DFlash config", layer);
    ids.push(layer - 1);
  }
  if (!d.capture_layers.empty()) own.set("target_layer_ids", std::move(ids));
  config.set("dflash_config", std::move(own));
  int64_t window = d.windows.empty() ? 0 : *std::max_element(d.windows.begin(), d.windows.end());
  for (int64_t w : d.windows) types.push(w > 0 ? "sliding_attention" : "full_attention");
  config.set("layer_types", std::move(types)).set("use_sliding_window", window > 0);
  config.set("sliding_window", window > 0 ? Json(window) : Json());
  rope_to_config(d.rope, config);
  tokens_to_config(d.bos, d.eos, config);
  dtype_to_config(d.stored, config);
  return config;
}

std::vector<int64_t> dflash_capture_layers(int64_t target_layers, int64_t draft_layers) {
  SF_CHECK(target_layers >= 4 && draft_layers >= 1, Exit::kConfig,
           "a DFlash draft of {} layers captures from a target of at least 4 layers, found {}", draft_layers,
           target_layers);
  if (draft_layers == 1) return {target_layers / 2 + 1};
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < draft_layers; ++i) {
    double at = 1 + static_cast<double>(i * (target_layers - 4)) / static_cast<double>(draft_layers - 1);
    layers.push_back(static_cast<int64_t>(std::nearbyint(at)) + 1);
  }
  return layers;
}

Dflash dflash_for_target(const Decoder& target, int64_t layers) {
  Dflash d;
  d.vocab = target.vocab;
  d.hidden = target.hidden;
  d.intermediate = target.intermediate;
  d.layers = layers;
  d.heads = target.heads;
  d.kv_heads = target.kv_heads;
  d.head_dim = target.head_dim;
  d.max_positions = target.max_positions;
  d.target_layers = target.layers;
  d.rms_eps = target.rms_eps;
  d.rope = target.rope;
  d.windows.assign(static_cast<size_t>(layers), 0);
  d.capture_layers = dflash_capture_layers(target.layers, layers);
  d.bos = target.bos;
  d.eos = target.eos;
  return d;
}

ModelSpec describe(const Dflash& draft) {
  ModelSpec spec;
  spec.family = "dflash";
  Builder builder(draft, spec);
  builder.context();
  for (int64_t i = 0; i < draft.layers; ++i) builder.layer(i);
  builder.open("norm", {fmt::format("hidden.{}", draft.layers)}, {"draft_hidden"});
  builder.add("norm.weight", {draft.hidden}, "ones");
  spec.buffers.push_back({"rotary", {draft.head_dim / 2}, Dtype::kF32, false});
  return spec;
}

ModelSpec describe_training(const Dflash& draft, bool tied) {
  ModelSpec spec;
  spec.family = "dflash";
  Builder builder(draft, spec);
  builder.open("blocks", {"input_ids", "loss_mask", "lengths", "anchors"},
               {"blocks", "slot_ids", "context_rows", "label_slots", "label_ids", "label_offsets"});
  builder.context();
  builder.open("embed", {"slot_ids"}, {"hidden.0"});
  builder.add(kTargetEmbedding, {draft.vocab, draft.hidden}, "", false);
  for (int64_t i = 0; i < draft.layers; ++i) builder.layer(i);
  builder.open("norm", {fmt::format("hidden.{}", draft.layers), "label_slots"}, {"states"});
  builder.add("norm.weight", {draft.hidden}, "ones");
  builder.open("head", {"states", "label_ids"}, {"nll", "top1"});
  if (tied) {
    spec.aliases.push_back({kTargetHead, kTargetEmbedding});
    spec.segments.back().parameters.push_back(kTargetHead);
    spec.tables = {{kTargetEmbedding, true, true}};
  } else {
    builder.add(kTargetHead, {draft.vocab, draft.hidden}, "", false);
    spec.tables = {{kTargetEmbedding, true, false}, {kTargetHead, false, true}};
  }
  spec.segments.back().flops_per_token += 2.0 * static_cast<double>(draft.vocab) * static_cast<double>(draft.hidden);
  builder.open("loss", {"nll", "top1", "label_ids", "label_offsets", "slot_weights"}, {"loss", "slot_sums"});
  spec.buffers.push_back({"rotary", {draft.head_dim / 2}, Dtype::kF32, false});
  return spec;
}

void check_trainable(const Dflash& draft) {
  SF_CHECK(draft.mask_token >= 0, Exit::kConfig, "this DFlash draft names no mask_token_id in its dflash_config");
  SF_CHECK(!draft.capture_layers.empty(), Exit::kConfig, "this DFlash draft names no target_layer_ids");
  bool slides = std::any_of(draft.windows.begin(), draft.windows.end(), [](int64_t window) { return window > 0; });
  SF_CHECK(!slides, Exit::kConfig,
           "this DFlash draft has layers of sliding_attention; only full_attention is trained in this release");
}

}  // namespace sf::arch
