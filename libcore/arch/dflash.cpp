// SPDX-License-Identifier: Apache-2.0
#include "arch/dflash.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "arch/block_spec.h"
#include "arch/config_check.h"
#include "base/error.h"

namespace sf::arch {
namespace {

// Of Hugging Face's Qwen3Config.
const DraftShape kUnstated = [] {
  DraftShape d;
  d.vocab = 151936, d.hidden = 4096, d.intermediate = 22016, d.layers = 5, d.heads = 32, d.head_dim = 128;
  d.max_positions = 32768;
  return d;
}();

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

}  // namespace

Dflash blocks_from_config(const Json& config) {
  Dflash d;
  static_cast<DraftShape&>(d) = shape_from_config(config, kUnstated);
  d.block = positive(config, "block_size", 16, 1024);
  SF_CHECK(d.block >= 2, Exit::kConfig, "config.json: block_size = {}, wanted at least 2", d.block);
  d.bias = config.get_bool("attention_bias", false);
  read_windows(config, d);
  read_capture(config, d);
  return d;
}

Dflash dflash_from_config(const Json& config) {
  check_architecture(config, kDflashArchitecture);
  return blocks_from_config(config);
}

Json dflash_to_config(const Dflash& draft) {
  return blocks_to_config(draft, kDflashArchitecture)
      .set("auto_map", Json::object().set("AutoModel", "dflash.DFlashDraftModel"));
}

Json blocks_to_config(const Dflash& d, std::string_view architecture) {
  Json config = Json::object();
  config.set("architectures", Json(Json::Array{Json(architecture)})).set("model_type", "qwen3");
  shape_to_config(d, config);
  config.set("attention_bias", d.bias).set("block_size", d.block);
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
  static_cast<DraftShape&>(d) = shape_for_target(target, layers);
  d.target_layers = target.layers;
  d.windows.assign(static_cast<size_t>(layers), 0);
  d.capture_layers = dflash_capture_layers(target.layers, layers);
  return d;
}

ModelSpec describe(const Dflash& draft) {
  BlockSpec builder(draft, "dflash");
  builder.context();
  builder.layers();
  builder.open("norm", {builder.last()}, {"draft_hidden"});
  builder.add("norm.weight", {draft.hidden}, "ones");
  return builder.spec();
}

ModelSpec describe_training(const Dflash& draft, bool tied) {
  BlockSpec builder(draft, "dflash");
  builder.blocks();
  builder.context();
  builder.embed("embed", "slot_ids", "hidden.0");
  builder.layers();
  builder.open("norm", {builder.last(), "label_slots"}, {"states"});
  builder.add("norm.weight", {draft.hidden}, "ones");
  builder.open("head", {"states", "label_ids"}, {"nll", "top1"});
  builder.head(tied, false);
  builder.open("loss", {"nll", "top1", "label_ids", "label_offsets", "label_slots", "slot_weights"},
               {"loss", "slot_sums"});
  return builder.spec();
}

void check_trainable(const Dflash& draft) {
  SF_CHECK(draft.mask_token >= 0, Exit::kConfig, "this draft names no mask_token_id in its dflash_config");
  SF_CHECK(!draft.capture_layers.empty(), Exit::kConfig, "this draft names no target_layer_ids");
}

}  // namespace sf::arch
