// SPDX-License-Identifier: Apache-2.0
// Settings: one table of keys with type, default, range and doc; values from TOML files, --set and flags, each with its
// origin; and a record of who applied each, because an option that nobody applied is an error.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/metric_sink.h"

namespace sf::config {

struct Key {
  std::string name;                 // "training.learning_rate"
  enum class Type { kBool, kInt, kFloat, kString, kStringList, kIntList } type = Type::kString;
  Json otherwise;                   // default
  double min = 0, max = 0;          // numeric range if min < max
  std::vector<std::string> choices; // allowed strings, if not empty
  std::string doc;                  // one line, with its unit
};

// All keys ShardForge knows, in the order of the manual page shardforge.toml(5).
const std::vector<Key>& schema();

class Settings : public AppliedOptions {
 public:
  // Only keys of these sections may be set; defaults for all of them are present.
  explicit Settings(std::vector<std::string> sections);

  void load_file(const std::string& path);                               // kConfig with file:line:col and did-you-mean
  void set(std::string_view assignment, std::string_view origin);        // "key=value", value in TOML syntax; kUsage
  void set_value(std::string_view key, Json value, std::string_view origin);

  bool get_bool(std::string_view key) const;
  int64_t get_int(std::string_view key) const;
  double get_float(std::string_view key) const;
  std::string get_string(std::string_view key) const;
  std::vector<std::string> get_strings(std::string_view key) const;
  std::vector<int64_t> get_ints(std::string_view key) const;
  std::string origin(std::string_view key) const;  // "default", "demo.toml:12:1", "--set", "--ranks"
  bool given(std::string_view key) const;          // not a default

  // The code that makes a setting true says so, once; echoed as "applied KEY=VALUE to WHAT by ROOM".
  void applied(std::string_view key, std::string_view value, std::string_view to_what, std::string_view by) override;
  std::vector<std::string> echo() const;           // those lines
  // Keys that were given but that nobody applied. A verb ends its set-up by refusing them (kConfig).
  std::vector<std::string> unapplied() const;

  Json resolved() const;         // {"training": {...}, ...}
  std::string resolved_toml() const;  // with the origin of each value as a comment
  std::string digest() const;

 private:
  struct Entry {
    Json value;
    std::string origin = "default";
    std::string applied_line;
  };
  std::vector<std::string> sections_;
  std::map<std::string, Entry, std::less<>> entries_;
};

// The nearest of `candidates` to `word` (edit distance), or "" if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace sf::config
