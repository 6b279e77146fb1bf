// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>

#include "arch/config_check.h"
#include "arch/decoder.h"
#include "base/error.h"

namespace sf::arch {
namespace {

constexpr std::string_view kTypes[] = {"default", "linear", "dynamic", "llama3", "yarn"};

bool is_dictionary(const Json* value) {
  return value && value->is_object() && !value->as_object().empty();
}

// The dictionary in force, or an empty object.
Json dictionary(const Json& config) {
  for (std::string_view key : {"rope_scaling", "rope_parameters"}) {
    const Json* value = config.find(key);
    SF_CHECK(!value || value->is_null() || value->is_object(), Exit::kData,
             "config.json: {} is {}, wanted an object or null", key, value->type_name());
    if (!is_dictionary(value)) continue;
    for (const auto& [name, inner] : value->as_object())
      SF_CHECK(!inner.is_object(), Exit::kConfig,
               "config.json: {} is a map by layer type (\"{}\"), wanted one set of rotary parameters", key, name);
    return *value;
  }
  return Json::object();
}

// What transformers' own check of a scaling demands; a constant in its stead would describe another model.
void check_stated(const Rope& rope, const Json& values, const Json& config) {
  bool scaled = rope.type != "default";
  SF_CHECK(!scaled || values.contains("factor"), Exit::kConfig, "config.json: rope type \"{}\" needs a factor",
           rope.type);
  if (rope.type != "llama3") return;
  for (const char* key : {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"})
    SF_CHECK(values.contains(key) || (key[0] == 'o' && config.contains(key)), Exit::kConfig,
             "config.json: rope type \"llama3\" needs {}", key);
}

void check_range(const Rope& rope) {
  in_range(rope.theta, "rope_theta", 1, 1e15);
  in_range(rope.factor, "rope factor", 0, 1e6);
  if (rope.type == "llama3") {
    in_range(rope.low_freq_factor, "rope low_freq_factor", 0, 1e6);
    in_range(rope.high_freq_factor, "rope high_freq_factor", rope.low_freq_factor, 1e6);
  }
}

std::vector<double> plain(double theta, int64_t dims) {
  std::vector<double> inverse(static_cast<size_t>(dims / 2));
  for (size_t i = 0; i < inverse.size(); ++i)
    inverse[i] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dims));
  return inverse;
}

void scale_llama3(const Rope& rope, std::vector<double>& inverse) {
  double old = rope.original_max_positions, low = rope.low_freq_factor, high = rope.high_freq_factor;
  for (double& inv : inverse) {
    double wave = 2 * std::numbers::pi / inv;
    if (wave < old / high) continue;
    double smooth = wave > old / low ? 0 : (old / wave - low) / (high - low);
    inv = (1 - smooth) * inv / rope.factor + smooth * inv;
  }
}

double yarn_gain(double factor, double mscale) {
  return factor > 1 ? 0.1 * mscale * std::log(factor) + 1 : 1;
}

double yarn_attention(const Rope& rope) {
  if (rope.attention_factor != 0) return rope.attention_factor;
  if (rope.mscale != 0 && rope.mscale_all_dim != 0)
    return yarn_gain(rope.factor, rope.mscale) / yarn_gain(rope.factor, rope.mscale_all_dim);
  return yarn_gain(rope.factor, 1);
}

void scale_yarn(const Rope& rope, int64_t dims, std::vector<double>& inverse) {
  double d = static_cast<double>(dims);
  auto correction = [&](double turns) {
    return d * std::log(rope.original_max_positions / (2 * std::numbers::pi * turns)) / (2 * std::log(rope.theta));
  };
  double lo = correction(rope.beta_fast), hi = correction(rope.beta_slow);
  if (rope.truncate) lo = std::floor(lo), hi = std::ceil(hi);
  lo = std::max(lo, 0.0);
  hi = std::min(hi, d - 1);
  if (lo == hi) hi += 0.001;
  for (size_t i = 0; i < inverse.size(); ++i) {
    double ramp = std::clamp((static_cast<double>(i) - lo) / (hi - lo), 0.0, 1.0);
    inverse[i] = inverse[i] / rope.factor * ramp + inverse[i] * (1 - ramp);
  }
}

}  // namespace

namespace {

void read_form(const Json& config, const Json& values, const RopeForm& form, Rope& rope) {
  const double otherwise = form.partial > 0 ? form.partial : 1;
  rope.partial = values.get_double("partial_rotary_factor", config.get_double("partial_rotary_factor", otherwise));
  SF_CHECK(form.partial > 0 || rope.partial == 1, Exit::kConfig,
           "config.json: partial_rotary_factor = {} is not supported, only 1", rope.partial);
  in_range(rope.partial, "partial_rotary_factor", 0, 1);
  rope.sections = form.sections;
  const Json* sections = values.find("mrope_section");
  if (form.sections.empty() || !sections || sections->is_null()) return;
  rope.sections.clear();
  for (const Json& section : sections->as_array()) {
    SF_CHECK(section.as_int() >= 0 && section.as_int() <= kMaxExtent, Exit::kConfig,
             "config.json: mrope_section holds {}, wanted 0 to {}", section.as_int(), kMaxExtent);
    rope.sections.push_back(section.as_int());
  }
  SF_CHECK(rope.sections.size() == 3, Exit::kConfig, "config.json: mrope_section has {} entries, wanted 3",
           rope.sections.size());
}

}  // namespace

Rope rope_from_config(const Json& config, int64_t max_positions, const RopeForm& form) {
  Json values = dictionary(config);
  Rope rope;
  rope.type = values.get_string("rope_type", values.get_string("type", "default"));
  SF_CHECK(std::find(std::begin(kTypes), std::end(kTypes), rope.type) != std::end(kTypes), Exit::kConfig,
           "config.json: rope type \"{}\" is unknown; known: default, linear, dynamic, llama3, yarn", rope.type);
  read_form(config, values, form, rope);
  rope.theta = values.get_double("rope_theta", config.get_double("rope_theta", 10000));
  rope.factor = values.get_double("factor", 1);
  rope.low_freq_factor = values.get_double("low_freq_factor", 1);
  rope.high_freq_factor = values.get_double("high_freq_factor", 4);
  double original = values.get_double("original_max_position_embeddings", static_cast<double>(max_positions));
  rope.original_max_positions = config.get_double("original_max_position_embeddings", original);
  rope.beta_fast = values.get_double("beta_fast", 32);
  rope.beta_slow = values.get_double("beta_slow", 1);
  rope.mscale = values.get_double("mscale", 0);
  rope.mscale_all_dim = values.get_double("mscale_all_dim", 0);
  rope.attention_factor = values.get_double("attention_factor", 0);
  rope.truncate = values.get_bool("truncate", true);
  in_range(rope.original_max_positions, "original_max_position_embeddings", 0, 1e12);
  check_stated(rope, values, config);
  check_range(rope);
  return rope;
}

void rope_to_config(const Rope& rope, Json& config) {
  Json values = Json::object();
  values.set("rope_type", rope.type);
  if (rope.type != "default") values.set("factor", rope.factor);
  if (rope.type == "llama3")
    values.set("low_freq_factor", rope.low_freq_factor).set("high_freq_factor", rope.high_freq_factor);
  if (rope.type == "yarn") {
    values.set("beta_fast", rope.beta_fast).set("beta_slow", rope.beta_slow);
    if (rope.mscale != 0) values.set("mscale", rope.mscale);
    if (rope.mscale_all_dim != 0) values.set("mscale_all_dim", rope.mscale_all_dim);
    if (rope.attention_factor != 0) values.set("attention_factor", rope.attention_factor);
    if (!rope.truncate) values.set("truncate", false);
  }
  if (rope.type == "llama3" || rope.type == "yarn")
    values.set("original_max_position_embeddings", static_cast<int64_t>(rope.original_max_positions));
  if (rope.partial != 1) values.set("partial_rotary_factor", rope.partial);
  if (!rope.sections.empty()) {
    Json sections = Json::array();
    for (int64_t section : rope.sections) sections.push(section);
    values.set("mrope_section", std::move(sections)).set("mrope_interleaved", true);
  }
  config.set("rope_theta", rope.theta);
  config.set("rope_scaling", rope.type == "default" ? Json() : values);
  config.set("rope_parameters", values.set("rope_theta", rope.theta));
}

RopeTable rope_table(const Rope& rope, int64_t rotary_dims, int64_t max_positions, int64_t length) {
  SF_ASSERT(rotary_dims > 0 && rotary_dims % 2 == 0);
  double d = static_cast<double>(rotary_dims), theta = rope.theta;
  if (rope.type == "dynamic" && length > max_positions) {
    double ratio = static_cast<double>(length) / static_cast<double>(max_positions);
    theta *= std::pow(rope.factor * ratio - (rope.factor - 1), d / (d - 2));
  }
  RopeTable table{plain(theta, rotary_dims), 1};
  if (rope.type == "linear")
    for (double& inv : table.inverse_frequency) inv /= rope.factor;
  if (rope.type == "llama3") scale_llama3(rope, table.inverse_frequency);
  if (rope.type == "yarn") {
    scale_yarn(rope, rotary_dims, table.inverse_frequency);
    table.attention_scale = yarn_attention(rope);
  }
  return table;
}

std::vector<int64_t> planes_of_slots(const std::vector<int64_t>& sections, int64_t slots, bool interleaved) {
  std::vector<int64_t> planes(static_cast<size_t>(slots), 0);
  int64_t slot = 0;
  for (int64_t plane = 0; plane < std::ssize(sections); ++plane) {
    const int64_t count = sections[static_cast<size_t>(plane)];
    for (int64_t i = 0; i < count && plane > 0 && interleaved; ++i)
      if (plane + 3 * i < slots) planes[static_cast<size_t>(plane + 3 * i)] = plane;
    for (int64_t i = 0; i < count && !interleaved && slot < slots; ++i) planes[static_cast<size_t>(slot++)] = plane;
  }
  return planes;
}

Buffer rotary_buffer(const Rope& rope, int64_t rotary_dims, int64_t max_positions) {
  RopeTable table = rope_table(rope, rotary_dims, max_positions, 1);
  return {"rotary",
          {rotary_dims / 2},
          Dtype::kF32,
          false,
          {table.inverse_frequency.begin(), table.inverse_frequency.end()}};
}

}  // namespace sf::arch
