// SPDX-License-Identifier: Apache-2.0
#include "config/toml_reader.h"

#include <algorithm>
#include <cmath>

#define TOML_HEADER_ONLY 0
#include <toml++/toml.h>

#include "base/error.h"

namespace sf::config {
namespace {

Json to_json(const toml::node& node, bool& is_date) {
  if (const auto* text = node.as_string()) return Json(text->get());
  if (const auto* number = node.as_integer()) return Json(number->get());
  if (const auto* number = node.as_floating_point()) return Json(number->get());
  if (const auto* truth = node.as_boolean()) return Json(truth->get());
  if (const auto* list = node.as_array()) {
    Json items = Json::array();
    for (const toml::node& item : *list) items.push(to_json(item, is_date));
    return items;
  }
  if (const auto* table = node.as_table()) {
    Json members = Json::object();
    for (const auto& [key, item] : *table) members.set(key.str(), to_json(item, is_date));
    return members;
  }
  is_date = true;
  return Json();
}

void flatten(const toml::table& table, const std::string& prefix, const std::set<std::string>& whole,
             std::vector<Assignment>& out) {
  for (const auto& [key, node] : table) {
    std::string path = prefix.empty() ? std::string(key.str()) : prefix + "." + std::string(key.str());
    if (const auto* inner = node.as_table(); inner && !inner->empty() && !whole.contains(path)) {
      flatten(*inner, path, whole, out);
      continue;
    }
    if (node.is_table() && prefix.empty()) continue;  // an empty section sets nothing
    toml::source_position at = key.source().begin;
    Assignment one{.key = std::move(path), .line = static_cast<int>(at.line), .column = static_cast<int>(at.column)};
    one.value = to_json(node, one.is_date);
    out.push_back(std::move(one));
  }
}

}  // namespace

std::vector<Assignment> read_toml(std::string_view text, std::string_view origin, const std::set<std::string>& whole) {
  std::vector<Assignment> result;
  try {
    flatten(toml::parse(text, std::string(origin)), "", whole, result);
  } catch (const toml::parse_error& error) {
    toml::source_position at = error.source().begin;
    fail(Exit::kConfig, "{}:{}:{}: not valid TOML: {}", origin, at.line, at.column, error.description());
  }
  std::stable_sort(result.begin(), result.end(), [](const Assignment& a, const Assignment& b) {
    return std::pair(a.line, a.column) < std::pair(b.line, b.column);
  });
  return result;
}

std::optional<Json> read_toml_value(std::string_view text) {
  // A line break would let the value smuggle in further assignments.
  if (text.find_first_of("\r\n") != std::string_view::npos) return std::nullopt;
  try {
    toml::table table = toml::parse("value = " + std::string(text));
    bool is_date = false;
    Json value = to_json(*table.get("value"), is_date);
    if (is_date) return std::nullopt;
    return value;
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

std::string toml_text(const Json& value) {
  if (value.is_number() && !value.is_int()) {
    double number = value.as_double();
    std::string text = double_text(number);
    // TOML tells floats from integers by their look.
    return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
  }
  if (value.is_object()) {
    std::string members;
    for (const auto& [key, item] : value.as_object())
      members += (members.empty() ? " " : ", ") + Json(key).dump() + " = " + toml_text(item);
    return "{" + members + " }";
  }
  if (!value.is_array()) return value.dump();
  std::string text = "[";
  for (const Json& item : value.as_array()) text += (text.size() > 1 ? ", " : "") + toml_text(item);
  return text + "]";
}

}  // namespace sf::config
