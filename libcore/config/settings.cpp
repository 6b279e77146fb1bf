// SPDX-License-Identifier: Apache-2.0
#include "config/settings.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/hash.h"
#include "config/toml_reader.h"

namespace sf::config {
namespace {

constexpr size_t kMostFileBytes = size_t{1} << 20;

std::string section_of(std::string_view key) {
  return std::string(key.substr(0, key.find('.')));
}
std::string leaf_of(std::string_view key) {
  size_t dot = key.rfind('.');
  return std::string(dot == std::string_view::npos ? key : key.substr(dot + 1));
}

const Key* find_key(std::string_view name) {
  for (const Key& key : schema())
    if (key.name == name) return &key;
  return nullptr;
}

// What the same thing is called elsewhere; only used to suggest our word.
std::string foreign_word(const std::string& leaf) {
  static const std::map<std::string, const char*> words = {
      {"lr", "training.learning_rate"},
      {"ttt_length", "training.unroll"},
      {"num_epochs", "training.epochs"},
      {"lr_scheduler", "training.schedule"},
      {"lr_scheduler_type", "training.schedule"},
      {"max_norm", "training.max_grad_norm"},
      {"grad_clip", "training.max_grad_norm"},
      {"gradient_clipping", "training.max_grad_norm"},
      {"accumulation_steps", "training.micro_batches"},
      {"gradient_accumulation_steps", "training.micro_batches"},
      {"save_interval", "training.checkpoint_every"},
      {"log_interval", "training.log_every"},
      {"max_checkpoints", "training.keep_checkpoints"},
      {"draft_vocab_size", "draft.vocab_size"},
      {"aux_hidden_state_layer_ids", "draft.layers"},
  };
  auto found = words.find(leaf);
  return found == words.end() ? "" : found->second;
}

std::string wanted_text(const Key& key) {
  using Type = Key::Type;
  bool ranged = key.min < key.max;
  std::string range = ranged ? fmt::format(" from {}", key.min) : "";
  if (ranged && key.max < 1e16) range += fmt::format(" to {}", key.max);
  switch (key.type) {
    case Type::kBool:
      return "true or false";
    case Type::kInt:
      return "a whole number" + range;
    case Type::kFloat:
      return "a number" + range;
    case Type::kStringList:
      return "a list of strings";
    case Type::kIntList:
      return "a list of whole numbers" + range;
    case Type::kTable:
      return "a table, or the path of a JSON file";
    case Type::kString:
      break;
  }
  if (key.choices.empty()) return "a string";
  std::string text = "one of";
  for (const std::string& choice : key.choices) text += (text == "one of" ? " " : ", ") + choice;
  return text;
}

bool in_range(const Key& key, const Json& value) {
  double number = value.as_double();
  if (!(key.min < key.max)) return std::isfinite(number);
  // As a double, the first whole number beyond 2^53 would be 2^53.
  bool beyond = value.is_int() && key.max < 0x1p62 && value.as_int() > static_cast<int64_t>(key.max);
  return !beyond && number >= key.min && number <= key.max;
}

bool acceptable(const Key& key, const Json& value) {
  using Type = Key::Type;
  auto is_int = [&](const Json& item) { return item.is_int() && in_range(key, item); };
  auto is_string = [](const Json& item) { return item.is_string(); };
  auto all = [&](auto&& test) {
    return value.is_array() && std::all_of(value.as_array().begin(), value.as_array().end(), test);
  };
  switch (key.type) {
    case Type::kBool:
      return value.is_bool();
    case Type::kInt:
      return is_int(value);
    case Type::kFloat:
      return value.is_number() && in_range(key, value);
    case Type::kStringList:
      return all(is_string);
    case Type::kIntList:
      return all(is_int);
    case Type::kTable:
      return value.is_object() || value.is_string();
    case Type::kString:
      break;
  }
  if (!value.is_string()) return false;
  return key.choices.empty() ||
         std::find(key.choices.begin(), key.choices.end(), value.as_string()) != key.choices.end();
}

void check_value(const Key& key, const Json& value, std::string_view where) {
  if (acceptable(key, value) || fault("config.skip_range")) return;
  std::string shown =
      value.is_number() && !std::isfinite(value.as_double()) ? "a value that is not finite" : toml_text(value);
  std::string hint = value.is_string() && !key.choices.empty() ? nearest(value.as_string(), key.choices) : "";
  fail(Exit::kConfig, "{}: {}: wanted {}, found {}{}", where, key.name, wanted_text(key), shown,
       hint.empty() ? "" : fmt::format(" (did you mean {}?)", hint));
}

std::set<std::string> table_keys() {
  std::set<std::string> names;
  for (const Key& key : schema())
    if (key.type == Key::Type::kTable) names.insert(key.name);
  return names;
}

std::string where_of(const std::string& path, const Assignment& one) {
  return fmt::format("{}:{}:{}", path, one.line, one.column);
}

}  // namespace

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const Key& key : schema()) {
    std::string section = section_of(key.name);
    if (std::find(names.begin(), names.end(), section) == names.end()) names.push_back(section);
  }
  return names;
}

bool reads(const std::vector<std::string>& names, std::string_view key) {
  return std::find(names.begin(), names.end(), key) != names.end() ||
         std::find(names.begin(), names.end(), section_of(key)) != names.end();
}

Settings::Settings(std::vector<std::string> sections) : sections_(std::move(sections)) {
  std::vector<std::string> known = section_names();
  for (const std::string& name : sections_)
    SF_ASSERT(find_key(name) || std::find(known.begin(), known.end(), name) != known.end());
  for (const Key& key : schema())
    if (reads(sections_, key.name)) entries_[key.name] = Entry{.key = &key, .value = key.otherwise};
}

std::string Settings::suggestion(std::string_view key) const {
  std::string leaf = leaf_of(key);
  std::vector<std::string> names;
  for (const Key& known : schema()) {
    if (!entries_.empty() && !entries_.contains(known.name)) continue;
    if (leaf_of(known.name) == leaf) return fmt::format(" (did you mean {}?)", known.name);
    names.push_back(known.name);
  }
  std::string guess = foreign_word(leaf);
  if (guess.empty()) guess = nearest(key, names);
  if (guess.empty()) {
    for (const std::string& name : names)
      if (!nearest(leaf, {leaf_of(name)}).empty()) guess = name;
  }
  return guess.empty() ? "" : fmt::format(" (did you mean {}?)", guess);
}

void Settings::load_file(const std::string& path) {
  load_text(read_file(path, kMostFileBytes), path);
}

void Settings::load_text(std::string_view text, const std::string& path) {
  for (Assignment& one : read_toml(text, path, table_keys())) {
    const Key* key = find_key(one.key);
    std::string where = where_of(path, one);
    SF_CHECK(key, Exit::kUsage, "{}: unknown key {}{}; shardforge.toml(5) lists all keys", where, one.key,
             suggestion(one.key));
    SF_CHECK(!one.is_date, Exit::kConfig, "{}: {}: wanted {}, found a date or time", where, one.key, wanted_text(*key));
    check_value(*key, one.value, where);
    auto found = entries_.find(one.key);
    if (found == entries_.end()) {
      unread_.push_back(one.key);
      continue;
    }
    found->second.value = std::move(one.value);
    found->second.origin = where;
  }
}

void Settings::set(std::string_view assignment, std::string_view origin) {
  size_t equals = assignment.find('=');
  SF_CHECK(equals != std::string_view::npos && equals > 0, Exit::kUsage, "{} {}: wanted section.key=value", origin,
           assignment);
  auto trim = [](std::string_view text) {
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
    return text;
  };
  std::string_view name = trim(assignment.substr(0, equals)), text = trim(assignment.substr(equals + 1));
  const Key* key = find_key(name);
  SF_CHECK(key, Exit::kUsage, "{}: unknown key {}{}; shardforge.toml(5) lists all keys", origin, name,
           suggestion(name));
  bool quoted = !text.empty() && (text.front() == '"' || text.front() == '\'');
  bool bare =
      key->type == Key::Type::kTable ? !quoted && !text.starts_with('{') : key->type == Key::Type::kString && !quoted;
  std::optional<Json> value = bare ? Json(text) : read_toml_value(text);
  SF_CHECK(value, Exit::kConfig, "{}: {}: wanted {}, found {}, which is no TOML value", origin, name, wanted_text(*key),
           text.empty() ? "nothing" : text);
  set_value(name, std::move(*value), origin);
}

void Settings::set_value(std::string_view name, Json value, std::string_view origin) {
  const Key* key = find_key(name);
  SF_CHECK(key, Exit::kUsage, "{}: unknown key {}{}", origin, name, suggestion(name));
  auto found = entries_.find(name);
  if (found == entries_.end()) {
    std::string read;
    for (const std::string& section : sections_) read += (read.empty() ? "" : ", ") + section;
    fail(Exit::kUsage, "{}: {} is not read here (read: {}); a settings file may hold it for another verb", origin, name,
         read.empty() ? "none" : read);
  }
  check_value(*key, value, origin);
  found->second.value = std::move(value);
  found->second.origin = origin;
}

const Settings::Entry& Settings::entry(std::string_view key) const {
  auto found = entries_.find(key);
  if (found == entries_.end()) fail(Exit::kSoftware, "setting {} is not read by this verb's table", key);
  return found->second;
}

bool Settings::get_bool(std::string_view key) const {
  return entry(key).value.as_bool();
}
int64_t Settings::get_int(std::string_view key) const {
  return entry(key).value.as_int();
}
double Settings::get_float(std::string_view key) const {
  return entry(key).value.as_double();
}
std::string Settings::get_string(std::string_view key) const {
  return entry(key).value.as_string();
}

std::vector<std::string> Settings::get_strings(std::string_view key) const {
  std::vector<std::string> result;
  for (const Json& item : entry(key).value.as_array()) result.push_back(item.as_string());
  return result;
}

std::vector<int64_t> Settings::get_ints(std::string_view key) const {
  std::vector<int64_t> result;
  for (const Json& item : entry(key).value.as_array()) result.push_back(item.as_int());
  return result;
}

std::string Settings::shown(std::string_view key) const {
  const Json& value = entry(key).value;
  return value.is_string() ? value.as_string() : toml_text(value);
}

const Json& Settings::get_table(std::string_view key) const {
  return entry(key).value;
}

std::string Settings::origin(std::string_view key) const {
  return entry(key).origin;
}
bool Settings::given(std::string_view key) const {
  return entry(key).origin != "default";
}

std::vector<std::string> Settings::given_keys() const {
  std::vector<std::string> keys;
  for (const Key& key : schema())
    if (auto found = entries_.find(key.name); found != entries_.end() && found->second.origin != "default")
      keys.push_back(key.name);
  return keys;
}

void Settings::applied(std::string_view key, std::string_view value, std::string_view to_what, std::string_view by) {
  auto found = entries_.find(key);
  if (found == entries_.end()) fail(Exit::kSoftware, "{} says it applied {}, which this verb does not read", by, key);
  Echo echo{std::string(key), fmt::format("applied {}={} to {} by {}", key, value, to_what, by),
            to_what.starts_with("0 ")};
  std::vector<Echo>& said = found->second.applied;
  if (std::find(said.begin(), said.end(), echo) == said.end()) said.push_back(std::move(echo));
}

std::vector<Echo> Settings::echo(bool given_only) const {
  std::vector<Echo> all;
  for (const Key& key : schema()) {
    auto found = entries_.find(key.name);
    if (found == entries_.end() || (given_only && found->second.origin == "default")) continue;
    all.insert(all.end(), found->second.applied.begin(), found->second.applied.end());
  }
  return all;
}

std::vector<std::string> Settings::unapplied() const {
  std::vector<std::string> keys = given_keys();
  std::erase_if(keys, [&](const std::string& key) { return !entries_.at(key).applied.empty(); });
  return keys;
}

Json Settings::resolved() const {
  Json result = Json::object();
  for (const Key& key : schema()) {
    auto found = entries_.find(key.name);
    if (found == entries_.end()) continue;
    std::string section = section_of(key.name);
    Json members = result.contains(section) ? result.at(section) : Json::object();
    members.set(leaf_of(key.name), found->second.value);
    result.set(section, std::move(members));
  }
  return result;
}

std::string Settings::resolved_toml() const {
  std::string text, section;
  for (const Key& key : schema()) {
    auto found = entries_.find(key.name);
    if (found == entries_.end()) continue;
    if (section_of(key.name) != section) {
      section = section_of(key.name);
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    std::string line = fmt::format("{} = {}", leaf_of(key.name), toml_text(found->second.value));
    text += fmt::format("{:<40} # {}\n", line, found->second.origin);
  }
  return text;
}

std::string Settings::digest() const {
  return sha256_hex(resolved().dump());
}

}  // namespace sf::config
