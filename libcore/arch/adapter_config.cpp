// SPDX-License-Identifier: Apache-2.0
// adapter_config.json as PEFT 0.21 reads and writes it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "arch/adapter.h"
#include "base/error.h"

namespace sf::arch {
namespace {

constexpr int64_t kMostRank = 1 << 16;
constexpr double kMostAlpha = 1e9;

// Null, false, 0, "" and what is empty: what PEFT writes where a feature is not used.
bool is_unused(const Json& value) {
  if (value.is_bool()) return !value.as_bool();
  if (value.is_number()) return value.as_double() == 0;
  if (value.is_string()) return value.as_string().empty();
  if (value.is_array()) return value.as_array().empty();
  if (value.is_object()) return value.as_object().empty();
  return true;
}

// Each would change what the adapter computes, or which parameters there are.
void refuse_what_is_not_built(const Json& config) {
  std::string type = config.get_string("peft_type", "");
  SF_CHECK(type == "LORA", Exit::kConfig, "adapter_config.json: peft_type \"{}\" is not supported, only \"LORA\"",
           type);
  std::string bias = config.get_string("bias", "none");
  SF_CHECK(bias == "none", Exit::kConfig, "adapter_config.json: bias \"{}\" is not supported, only \"none\"", bias);
  // These begin with the target's weights, and PEFT takes what they began with off them at every load.
  const Json* start = config.find("init_lora_weights");
  SF_CHECK(!start || !start->is_string() || start->as_string() == "gaussian" || start->as_string() == "eva" ||
               start->as_string() == "orthogonal",
           Exit::kConfig, "adapter_config.json: init_lora_weights \"{}\" changes the target, which is not supported",
           start && start->is_string() ? start->as_string() : "");
  for (const char* key : {"use_dora", "use_qalora", "use_bdlora", "lora_bias", "fan_in_fan_out", "modules_to_save",
                          "layer_replication", "trainable_token_indices", "layers_pattern", "alora_invocation_tokens",
                          "arrow_config", "velora_config", "kasa_config", "monteclora_config"}) {
    const Json* value = config.find(key);
    SF_CHECK(!value || is_unused(*value), Exit::kConfig, "adapter_config.json: {} is used, which is not supported",
             key);
  }
}

std::vector<std::string> strings(const Json& value, const char* key) {
  std::vector<std::string> list;
  for (const Json& entry : value.as_array()) {
    SF_CHECK(entry.is_string() && !entry.as_string().empty(), Exit::kData,
             "adapter_config.json: {} holds {}, wanted names", key, entry.dump());
    list.push_back(entry.as_string());
  }
  std::sort(list.begin(), list.end());  // PEFT keeps a set: its order is chance
  return list;
}

Selection selection(const Json& config, const char* key) {
  const Json* value = config.find(key);
  if (!value || value->is_null()) return {};
  if (value->is_string()) return {{}, value->as_string()};
  return {strings(*value, key), {}};
}

int64_t checked_rank(const Json& value, const char* key) {
  SF_CHECK(value.is_int() && value.as_int() >= 1 && value.as_int() <= kMostRank, Exit::kData,
           "adapter_config.json: {} is {}, wanted a whole number from 1 to {}", key, value.dump(), kMostRank);
  return value.as_int();
}

double checked_alpha(const Json& value, const char* key) {
  SF_CHECK(value.is_number() && std::abs(value.as_double()) <= kMostAlpha, Exit::kData,
           "adapter_config.json: {} is {}, wanted a number", key, value.dump());
  return value.as_double();
}

const Json& stated(const Json& config, const char* key) {
  const Json* value = config.find(key);
  SF_CHECK(value && !value->is_null(), Exit::kData,
           "adapter_config.json: {} is missing: without it nobody knows what the adapter computes", key);
  return *value;
}

void read_overrides(const Json& config, Lora& lora) {
  if (const Json* ranks = config.find("rank_pattern"); ranks && !ranks->is_null())
    for (const auto& [key, value] : ranks->as_object())
      lora.ranks.emplace_back(key, checked_rank(value, "rank_pattern"));
  if (const Json* alphas = config.find("alpha_pattern"); alphas && !alphas->is_null())
    for (const auto& [key, value] : alphas->as_object())
      lora.alphas.emplace_back(key, checked_alpha(value, "alpha_pattern"));
}

std::vector<int64_t> layers_of(const Json& config) {
  const Json* value = config.find("layers_to_transform");
  if (!value || value->is_null()) return {};
  if (value->is_int()) return {value->as_int()};
  std::vector<int64_t> layers;
  for (const Json& layer : value->as_array()) layers.push_back(layer.as_int());
  return layers;
}

Json number(double value) {
  bool whole = value == std::floor(value) && std::abs(value) <= kMostAlpha;
  return whole ? Json(static_cast<int64_t>(value)) : Json(value);
}

Json list(const std::vector<std::string>& names) {
  Json out = Json::array();
  for (const std::string& name : names) out.push(name);
  return out;
}

Json json_of(const Selection& selection) {
  if (!selection.pattern.empty()) return Json(selection.pattern);
  return selection.names.empty() ? Json() : list(selection.names);
}

}  // namespace

bool is_adapter_config(const Json& config) {
  return config.is_object() && config.contains("peft_type");
}

Lora lora_from_config(const Json& config) {
  SF_CHECK(config.is_object(), Exit::kData, "adapter_config.json: wanted an object, found {}", config.type_name());
  refuse_what_is_not_built(config);
  Lora lora;
  lora.rank = checked_rank(stated(config, "r"), "r");
  lora.alpha = checked_alpha(stated(config, "lora_alpha"), "lora_alpha");
  lora.rank_stabilised = config.get_bool("use_rslora", false);
  lora.dropout = config.get_double("lora_dropout", 0);
  lora.targets = selection(config, "target_modules");
  lora.excluded = selection(config, "exclude_modules");
  if (const Json* experts = config.find("target_parameters"); experts && !experts->is_null())
    lora.parameters = strings(*experts, "target_parameters");
  lora.layers = layers_of(config);
  read_overrides(config, lora);
  return lora;
}

Json lora_to_config(const Lora& lora) {
  Json ranks = Json::object(), alphas = Json::object(), layers = Json::array();
  for (const auto& [key, value] : lora.ranks) ranks.set(key, value);
  for (const auto& [key, value] : lora.alphas) alphas.set(key, number(value));
  for (int64_t layer : lora.layers) layers.push(layer);
  Json config = Json::object();
  config.set("alpha_pattern", std::move(alphas)).set("auto_mapping", Json()).set("base_model_name_or_path", Json());
  config.set("bias", "none").set("exclude_modules", json_of(lora.excluded)).set("fan_in_fan_out", false);
  config.set("inference_mode", true).set("init_lora_weights", true).set("layer_replication", Json());
  config.set("layers_pattern", Json()).set("layers_to_transform", lora.layers.empty() ? Json() : std::move(layers));
  config.set("lora_alpha", number(lora.alpha)).set("lora_bias", false).set("lora_dropout", lora.dropout);
  config.set("modules_to_save", Json()).set("peft_type", "LORA").set("r", lora.rank);
  config.set("rank_pattern", std::move(ranks)).set("revision", Json()).set("target_modules", json_of(lora.targets));
  config.set("target_parameters", lora.parameters.empty() ? Json() : list(lora.parameters));
  config.set("task_type", "CAUSAL_LM").set("trainable_token_indices", Json()).set("use_dora", false);
  return config.set("use_rslora", lora.rank_stabilised);
}

}  // namespace sf::arch
