// SPDX-License-Identifier: Apache-2.0
#include "arch/eagle3.h"

#include <fmt/format.h>

#include <algorithm>

#include "arch/config_check.h"
#include "base/error.h"

namespace sf::arch {
namespace {

constexpr const char* kEmbedding = "embed_tokens.weight";
constexpr std::string_view kLayersKey = "eagle_aux_hidden_state_layer_ids";

void check_kind(const Json& config) {
  check_architecture(config, kEagle3Architecture);
  std::string type = config.get_string("model_type", "llama");
  SF_CHECK(type == "llama", Exit::kConfig, "config.json: model_type \"{}\" of a draft is unknown; known: llama", type);
  SF_CHECK(config.contains("draft_vocab_size"), Exit::kConfig,
           "config.json: draft_vocab_size is missing: this is not an EAGLE3 draft");
  SF_CHECK(!config.get_bool("attention_bias", false) && !config.get_bool("mlp_bias", false), Exit::kConfig,
           "config.json: attention_bias and mlp_bias must be false: an EAGLE3 draft has no bias");
}

std::array<int64_t, 3> read_layers(const Json& config) {
  std::array<int64_t, 3> layers{};
  const Json* eagle = config.find("eagle_config");
  const Json* ids = eagle ? eagle->find(kLayersKey) : nullptr;
  if (!ids || ids->is_null()) return layers;
  const Json::Array& list = ids->as_array();
  SF_CHECK(list.size() == 3, Exit::kConfig, "config.json: {} has {} entries, wanted 3", kLayersKey, list.size());
  for (size_t i = 0; i < 3; ++i) {
    int64_t id = list[i].as_int();
    SF_CHECK(id >= 0 && id < 4096, Exit::kConfig, "config.json: {}[{}] = {} is out of range, wanted 0 to 4095",
             kLayersKey, i, id);
    layers[i] =
        id + 1;  // SpecForge counts blocks from 0 and means the state after one; ours is the number of blocks done
  }
  return layers;
}

}  // namespace

Eagle3 eagle3_from_config(const Json& config) {
  check_kind(config);
  Eagle3 e;
  DraftShape unstated;  // Hugging Face's LlamaConfig
  unstated.bos = 1, unstated.eos = {2};
  static_cast<DraftShape&>(e) = shape_from_config(config, unstated);
  SF_CHECK(e.layers == 1, Exit::kConfig, "config.json: num_hidden_layers = {} of an EAGLE3 draft, only 1 is possible",
           e.layers);
  e.draft_vocab = size_of_config(config, "draft_vocab_size");
  SF_CHECK(e.draft_vocab <= e.vocab, Exit::kConfig, "config.json: draft_vocab_size = {} exceeds vocab_size = {}",
           e.draft_vocab, e.vocab);
  e.target_hidden = positive(config, "target_hidden_size", e.hidden);
  e.fc_norm = config.get_bool("fc_norm", false);
  e.norm_output = config.get_bool("norm_output", true);
  e.capture_layers = read_layers(config);
  return e;
}

Json eagle3_to_config(const Eagle3& e) {
  Json config = Json::object();
  config.set("architectures", Json(Json::Array{Json(kEagle3Architecture)})).set("model_type", "llama");
  shape_to_config(e, config);
  config.set("draft_vocab_size", e.draft_vocab);
  if (e.target_hidden != e.hidden) config.set("target_hidden_size", e.target_hidden);
  config.set("attention_bias", false).set("mlp_bias", false);
  config.set("fc_norm", e.fc_norm).set("norm_output", e.norm_output);
  if (e.capture_layers != std::array<int64_t, 3>{}) {
    Json ids = Json::array();
    for (int64_t layer : e.capture_layers) {
      SF_CHECK(layer >= 1, Exit::kConfig,
               "capture layer {} (the embedding) has no number in an EAGLE3 config; choose layers of 1 and above",
               layer);
      ids.push(layer - 1);
    }
    config.set("eagle_config", Json::object().set(kLayersKey, std::move(ids)).set("use_aux_hidden_state", true));
  }
  return config;
}

Eagle3 eagle3_for_target(const Decoder& target, int64_t draft_vocab) {
  SF_CHECK(draft_vocab >= 1 && draft_vocab <= target.vocab, Exit::kConfig,
           "draft vocabulary of {} is out of range, wanted 1 to the target's {}", draft_vocab, target.vocab);
  SF_CHECK(target.layers >= 4, Exit::kConfig, "the target has {} layers; an EAGLE3 draft captures three of at least 4",
           target.layers);
  Eagle3 e;
  static_cast<DraftShape&>(e) = shape_for_target(target, 1);
  e.draft_vocab = draft_vocab;
  e.target_hidden = target.hidden;
  e.capture_layers = {2, target.layers / 2, target.layers - 3};
  return e;
}

ModelSpec describe(const Eagle3& e) {
  ModelSpec spec;
  spec.family = "eagle3";
  Segment segment{
      "eagle3", {}, {"input_ids", "loss_mask", "hidden_state", "final_norm", "target_top1", "target_lse"}, {"loss"}, 0};
  auto add = [&](std::string name, Shape shape, std::string init, bool trainable = true) {
    if (trainable && shape.size() == 2)
      segment.flops_per_token += 2.0 * static_cast<double>(shape[0]) * static_cast<double>(shape[1]);
    segment.parameters.push_back(name);
    spec.parameters.push_back({std::move(name), std::move(shape), trainable, std::move(init)});
  };
  const std::string matrix = "normal:0.02", mid = "midlayer.";
  int64_t q = e.heads * e.head_dim, kv = e.kv_heads * e.head_dim;
  add(kEmbedding, {e.vocab, e.hidden}, "copy:model.embed_tokens.weight", false);
  add("fc.weight", {e.hidden, 3 * e.target_hidden}, matrix);
  for (int i = 0; e.fc_norm && i < 3; ++i) add(fmt::format("fc_norm.{}.weight", i), {e.target_hidden}, "ones");
  add(mid + "hidden_norm.weight", {e.hidden}, "ones");
  add(mid + "input_layernorm.weight", {e.hidden}, "ones");
  add(mid + "self_attn.q_proj.weight", {q, 2 * e.hidden}, matrix);
  add(mid + "self_attn.k_proj.weight", {kv, 2 * e.hidden}, matrix);
  add(mid + "self_attn.v_proj.weight", {kv, 2 * e.hidden}, matrix);
  add(mid + "self_attn.o_proj.weight", {e.hidden, q}, matrix);
  add(mid + "post_attention_layernorm.weight", {e.hidden}, "ones");
  add(mid + "mlp.gate_proj.weight", {e.intermediate, e.hidden}, matrix);
  add(mid + "mlp.up_proj.weight", {e.intermediate, e.hidden}, matrix);
  add(mid + "mlp.down_proj.weight", {e.hidden, e.intermediate}, matrix);
  add("norm.weight", {e.hidden}, "ones");
  add("lm_head.weight", {e.draft_vocab, e.hidden}, matrix);
  spec.buffers = {{"t2d", {e.vocab}, Dtype::kBool, true},
                  {"d2t", {e.draft_vocab}, Dtype::kI64, true},
                  rotary_buffer(e.rope, e.head_dim, e.max_positions)};
  spec.segments.push_back(std::move(segment));
  spec.tables = {{kEmbedding, true, false, true, true}};
  return spec;
}

std::string warm_start(const Eagle3& e, const Decoder& target, const std::string& parameter) {
  if (parameter == "lm_head.weight") return "rows:lm_head.weight";
  if (target.wide.streams > 1 && parameter.find("norm") != std::string::npos) return "";  // it has no such norms
  const std::string copy = target.centred_norms ? "copy:1+" : "copy:";
  if (parameter == "norm.weight") return copy + "model.norm.weight*0.2";
  if (parameter == "fc.weight") return e.hidden == e.target_hidden ? "pass:0.004" : "";
  if (parameter.ends_with("o_proj.weight") || parameter.ends_with("down_proj.weight")) return "zeros";
  for (size_t i = 0; i < e.capture_layers.size(); ++i)
    if (parameter == fmt::format("fc_norm.{}.weight", i))
      return e.capture_layers[i] == target.layers
                 ? copy + "model.norm.weight"
                 : fmt::format("{}model.layers.{}.input_layernorm.weight", copy, e.capture_layers[i]);
  return "";
}

ModelSpec describe_training(const Eagle3& draft) {
  ModelSpec spec = describe(draft);
  // Without it in the formula the last norm keeps its bytes, as in the reference.
  for (Parameter& parameter : spec.parameters)
    if (parameter.name == "norm.weight" && !draft.norm_output) parameter.trainable = false;
  spec.parameters.push_back({kTargetHead, {draft.draft_vocab, draft.target_hidden}, false, ""});
  Segment steps = std::move(spec.segments.front());
  steps.reads = {"input_ids",  "loss_mask", "target_top1",  "hidden_state", "final_norm",
                 "target_lse", "lengths",   "step_weights", "token_rows"};
  steps.writes = {"loss", "step_sums"};
  std::erase(steps.parameters, kEmbedding);
  steps.parameters.push_back(kTargetHead);
  spec.segments = {{"tokens", {}, {"input_ids"}, {"token_ids"}, 0},
                   {"embed", {kEmbedding}, {"token_ids"}, {"token_rows"}, 0},
                   std::move(steps)};
  spec.tables = {{kEmbedding, true, false, false, true}, {kTargetHead, false, true, true}};
  return spec;
}

}  // namespace sf::arch
