// SPDX-License-Identifier: Apache-2.0
#include "arch/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "arch/config_check.h"
#include "arch/experts_config.h"
#include "arch/hybrid_config.h"
#include "base/error.h"

namespace sf::arch {
namespace {

// What a missing key means. Where transformers' class derives a size from others, so do we; where it would take a
// constant, that of one published model, the key must be there.
struct Family {
  std::string_view name, architecture;
  bool kv_heads_stated;  // else as many as heads
  bool head_dim_stated;  // else hidden / heads
  int64_t bos, eos;
  // Of the class that wraps it beside a vision tower; its config holds this one's as text_config.
  std::string_view wrapper = {};
};
constexpr Family kFamilies[] = {
    {"llama", "LlamaForCausalLM", false, false, 1, 2},
    {"qwen2", "Qwen2ForCausalLM", true, false, -1, -1},
    {"qwen3", "Qwen3ForCausalLM", true, true, -1, -1},
    {"mistral", "MistralForCausalLM", true, false, 1, 2},
    {"qwen2_moe", "Qwen2MoeForCausalLM", true, false, -1, -1},
    {"qwen3_moe", "Qwen3MoeForCausalLM", true, false, -1, -1},
    {"qwen3_next", "Qwen3NextForCausalLM", true, true, -1, -1},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", true, true, -1, -1, "qwen3_5"},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", true, true, -1, -1, "qwen3_5_moe"},
    {"qwen4_exp_text", "Qwen4ExpForCausalLM", true, true, -1, -1, "qwen4_exp"},
};

std::string known() {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.architecture);
  return fmt::format("{}", fmt::join(names, ", "));
}

const Family* family_where(const std::function<bool(const Family&)>& is) {
  auto found = std::find_if(std::begin(kFamilies), std::end(kFamilies), is);
  return found == std::end(kFamilies) ? nullptr : found;
}

const Family& family_of(const Json& config) {
  const Json* list = config.find("architectures");
  std::string type = config.get_string("model_type", "");
  if (!list || list->is_null()) {
    const Family* family = family_where([&](const Family& f) { return f.name == type; });
    SF_CHECK(family, Exit::kConfig, "config.json: model_type \"{}\" is unknown and no architecture is named; known: {}",
             type, known());
    return *family;
  }
  SF_CHECK(list->is_array(), Exit::kData, "config.json: architectures is {}, wanted a list of one name",
           list->type_name());
  SF_CHECK(list->as_array().size() == 1, Exit::kConfig, "config.json: architectures names {}, wanted one of: {}",
           list->as_array().size(), known());
  const std::string& name = list->as_array()[0].as_string();
  const Family* family = family_where([&](const Family& f) { return f.architecture == name; });
  SF_CHECK(family, Exit::kConfig, "config.json: architecture \"{}\" is unknown; known: {}", name, known());
  SF_CHECK(type.empty() || type == family->name, Exit::kConfig,
           "config.json: architecture \"{}\" is of model_type \"{}\", but model_type is \"{}\"", name, family->name,
           type);
  return *family;
}

void refuse_what_is_not_built(const Json& config) {
  std::string act = config.get_string("hidden_act", "silu");
  SF_CHECK(act == "silu", Exit::kConfig, "config.json: hidden_act \"{}\" is not supported, only \"silu\"", act);
  const Json* quantised = config.find("quantization_config");
  SF_CHECK(!quantised || quantised->is_null(), Exit::kConfig,
           "config.json: quantization_config is present; quantised weights are not supported, use the original ones");
  int64_t parallel = config.get_int("pretraining_tp", 1);
  SF_CHECK(parallel == 1, Exit::kConfig, "config.json: pretraining_tp = {} is not supported, only 1", parallel);
}

bool is_moe(std::string_view family) {
  return family.ends_with("_moe");
}

// Which layers slide, after the family's rules for a config without layer_types.
std::vector<bool> sliding_layers(const Json& config, const Decoder& d, bool has_window) {
  std::vector<bool> slides(static_cast<size_t>(d.layers), d.family == "mistral" && has_window);
  const Json* types = config.find("layer_types");
  if (types && !types->is_null()) {
    const Json::Array& list = types->as_array();
    SF_CHECK(list.size() == slides.size(), Exit::kConfig, "config.json: layer_types has {} entries for {} layers",
             list.size(), slides.size());
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string& type = list[i].as_string();
      SF_CHECK(type == "full_attention" || type == "sliding_attention", Exit::kConfig,
               "config.json: layer_types[{}] = \"{}\" is unknown; known: full_attention, sliding_attention", i, type);
      slides[i] = type == "sliding_attention";
    }
  } else if (d.family == "qwen2" || d.family == "qwen3") {
    int64_t from = config.get_int("max_window_layers", 28);
    for (int64_t i = std::max<int64_t>(from, 0); i < d.layers; ++i) slides[static_cast<size_t>(i)] = true;
  }
  return slides;
}

std::vector<int64_t> windows_of(const Json& config, const Decoder& d) {
  std::vector<int64_t> windows(static_cast<size_t>(d.layers), 0);
  bool qwen = d.family == "qwen2" || d.family == "qwen3";
  const Json* given = config.find("sliding_window");
  bool has_window = given ? !given->is_null() : d.family != "llama";  // the classes' default is 4096
  if (is_moe(d.family)) {
    SF_CHECK(!config.get_bool("use_sliding_window", false), Exit::kConfig,
             "config.json: use_sliding_window is not supported in the {} family", d.family);
    has_window = false;
  }
  if (qwen && !config.get_bool("use_sliding_window", false)) has_window = false;
  std::vector<bool> slides = sliding_layers(config, d, has_window);
  bool any = std::find(slides.begin(), slides.end(), true) != slides.end();
  SF_CHECK(d.family != "llama" || !any, Exit::kConfig,
           "config.json: layer_types asks for sliding attention, which the llama family does not have");
  if (!has_window || !any) return windows;
  int64_t window = positive(config, "sliding_window", 4096, int64_t{1} << 40);
  for (size_t i = 0; i < windows.size(); ++i) windows[i] = slides[i] ? window : 0;
  return windows;
}

// A null stands for the derived value in every family's class; an absent key only where the class derives it too.
int64_t derivable(const Json& config, std::string_view key, bool stated, int64_t derived) {
  bool absent = stated && !config.contains(key);
  return absent ? size_of_config(config, key, 1 << 16) : positive(config, key, derived, 1 << 16);
}

void read_geometry(const Json& config, const Family& family, Decoder& d) {
  d.vocab = size_of_config(config, "vocab_size");
  d.hidden = size_of_config(config, "hidden_size");
  // Where every layer routes there may be none.
  if (!is_hybrid(d.family) || config.contains("intermediate_size"))
    d.intermediate = size_of_config(config, "intermediate_size");
  d.layers = size_of_config(config, "num_hidden_layers", 4096);
  d.heads = size_of_config(config, "num_attention_heads", 1 << 16);
  d.kv_heads = derivable(config, "num_key_value_heads", family.kv_heads_stated, d.heads);
  d.head_dim = derivable(config, "head_dim", family.head_dim_stated, std::max<int64_t>(d.hidden / d.heads, 1));
  d.max_positions = size_of_config(config, "max_position_embeddings", int64_t{1} << 40);
  SF_CHECK(d.heads % d.kv_heads == 0, Exit::kConfig,
           "config.json: num_attention_heads = {} is not a multiple of num_key_value_heads = {}", d.heads, d.kv_heads);
  SF_CHECK(d.family != "llama" || d.hidden % d.heads == 0, Exit::kConfig,
           "config.json: hidden_size = {} is not a multiple of num_attention_heads = {}", d.hidden, d.heads);
  SF_CHECK(d.heads * d.head_dim <= kMaxExtent, Exit::kConfig,
           "config.json: num_attention_heads = {} times head_dim = {} is out of range, wanted at most {}", d.heads,
           d.head_dim, kMaxExtent);
  SF_CHECK(d.head_dim % 2 == 0, Exit::kConfig, "config.json: head_dim = {} is odd: rotary pairs need an even number",
           d.head_dim);
}

bool has_attention_bias(std::string_view family) {
  return family == "llama" || family == "qwen3" || family == "qwen3_moe" || is_hybrid(family);
}

void check_rotary(const Decoder& d) {
  SF_CHECK(d.rotary_dims() >= 2 && d.rotary_dims() % 2 == 0, Exit::kConfig,
           "config.json: partial_rotary_factor = {} turns {} of {} dims, wanted an even number from 2 on",
           d.rope.partial, d.rotary_dims(), d.head_dim);
}

void check_dense(const Decoder& d) {
  for (int64_t i = 0; i < d.layers; ++i)
    SF_CHECK(d.intermediate > 0 || d.routes(i), Exit::kData,
             "config.json: intermediate_size is missing, but layer {} has no experts", i);
}

}  // namespace

Json text_config(const Json& config) {
  SF_CHECK(config.is_object(), Exit::kData, "config.json: wanted an object, found {}", config.type_name());
  const Json* text = config.find("text_config");
  const std::string type = config.get_string("model_type", "");
  const Family* family = family_where([&](const Family& f) { return !f.wrapper.empty() && f.wrapper == type; });
  if (!family || !text || !text->is_object()) return config;
  Json result = *text;
  result.set("model_type", family->name).set("architectures", Json(Json::Array{Json(family->architecture)}));
  for (const char* key : {"tie_word_embeddings", "dtype", "torch_dtype", "quantization_config"})
    if (const Json* outer = config.find(key); outer && !outer->is_null()) result.set(key, *outer);
  for (const char* key : {"bos_token_id", "eos_token_id"})
    if (const Json* outer = config.find(key); outer && !result.contains(key)) result.set(key, *outer);
  return result;
}

Decoder decoder_from_config(const Json& given) {
  const Json config = text_config(given);
  const Family& family = family_of(config);
  refuse_what_is_not_built(config);
  Decoder d;
  d.family = family.name;
  d.architecture = family.architecture;
  read_geometry(config, family, d);
  d.rms_eps = in_range(config.get_double("rms_norm_eps", 1e-6), "rms_norm_eps", 0, 1);
  bool biased = has_attention_bias(family.name) && config.get_bool("attention_bias", false);
  d.qkv_bias = family.name == "qwen2" || (family.name == "qwen2_moe" && config.get_bool("qkv_bias", true)) || biased;
  d.o_bias = biased;
  d.mlp_bias = family.name == "llama" && config.get_bool("mlp_bias", false);
  d.qk_norm = family.name.starts_with("qwen3") || is_hybrid(family.name);
  d.tied = config.get_bool("tie_word_embeddings", false);
  d.rope = rope_from_config(config, d.max_positions, rope_form(family.name));
  check_rotary(d);
  d.stored = dtype_of_config(config);
  d.bos = bos_of_config(config, family.bos, d.vocab);
  d.eos = eos_of_config(config, family.eos, d.vocab);
  if (is_hybrid(d.family)) {
    d.windows.assign(static_cast<size_t>(d.layers), 0);
    read_hybrid(config, d);
  } else {
    d.windows = windows_of(config, d);
    if (is_moe(d.family)) d.experts = experts_from_config(config, d);
  }
  check_dense(d);
  return d;
}

std::vector<std::string> assumed(const Json& config, const Decoder& d) {
  std::vector<std::string> list;
  auto add = [&](const char* key, const auto& value) {
    const Json* stated = config.find(key);
    if (!stated || stated->is_null()) list.push_back(fmt::format("{} = {}", key, value));
  };
  auto rope_states = [&](const char* dictionary) {
    const Json* values = config.find(dictionary);
    return values && values->is_object() && values->contains("rope_theta");
  };
  add("num_key_value_heads", d.kv_heads);
  add("head_dim", d.head_dim);
  add("rms_norm_eps", d.rms_eps);
  if (!rope_states("rope_parameters") && !rope_states("rope_scaling")) add("rope_theta", d.rope.theta);
  auto widest = std::max_element(d.windows.begin(), d.windows.end());
  if (widest != d.windows.end() && *widest > 0) add("sliding_window", *widest);
  add("tie_word_embeddings", d.tied);
  if (d.eos.size() == 1) add("eos_token_id", d.eos[0]);
  return list;
}

namespace {

void windows_to_config(const Decoder& d, Json& config) {
  if (d.family == "llama") return;
  int64_t window = d.windows.empty() ? 0 : *std::max_element(d.windows.begin(), d.windows.end());
  bool uniform = std::all_of(d.windows.begin(), d.windows.end(), [&](int64_t w) { return w == window; });
  config.set("sliding_window", window > 0 ? Json(window) : Json());
  bool qwen = d.family != "mistral";
  if (qwen) config.set("use_sliding_window", window > 0);
  if (is_moe(d.family)) return;
  if (!qwen && uniform) return;
  Json types = Json::array();
  for (int64_t w : d.windows) types.push(w > 0 ? "sliding_attention" : "full_attention");
  config.set("layer_types", std::move(types));
  auto first = std::find_if(d.windows.begin(), d.windows.end(), [](int64_t w) { return w > 0; });
  if (qwen) config.set("max_window_layers", static_cast<int64_t>(first - d.windows.begin()));
}

}  // namespace

Json decoder_to_config(const Decoder& d) {
  Json config = Json::object();
  config.set("architectures", Json(Json::Array{Json(d.architecture)})).set("model_type", d.family);
  config.set("vocab_size", d.vocab).set("hidden_size", d.hidden).set("intermediate_size", d.intermediate);
  config.set("num_hidden_layers", d.layers).set("num_attention_heads", d.heads).set("num_key_value_heads", d.kv_heads);
  config.set("head_dim", d.head_dim).set("max_position_embeddings", d.max_positions);
  config.set("rms_norm_eps", d.rms_eps).set("hidden_act", "silu");
  if (has_attention_bias(d.family)) config.set("attention_bias", d.o_bias);
  if (d.family == "llama") config.set("mlp_bias", d.mlp_bias);
  if (is_moe(d.family)) experts_to_config(d, config);
  if (is_hybrid(d.family))
    hybrid_to_config(d, config);
  else
    windows_to_config(d, config);
  rope_to_config(d.rope, config);
  config.set("tie_word_embeddings", d.tied);
  tokens_to_config(d.bos, d.eos, config);
  dtype_to_config(d.stored, config);
  return config;
}

}  // namespace sf::arch
