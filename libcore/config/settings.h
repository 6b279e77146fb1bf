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
  std::string name;  // "training.learning_rate"
  // kTable: the content of a JSON object as a TOML table, or a string: the path of a file that holds it.
  enum class Type { kBool, kInt, kFloat, kString, kStringList, kIntList, kTable } type = Type::kString;
  Json otherwise;                    // default
  double min = 0, max = 0;           // numeric range if min < max
  std::vector<std::string> choices;  // allowed strings, if not empty
  std::string doc;                   // one line, with its unit
};

// All keys ShardForge knows, in the order of the manual page shardforge.toml(5).
const std::vector<Key>& schema();

// One place that made a setting true.
struct Echo {
  std::string key, line;  // "applied KEY=VALUE to WHAT by ROOM"
  bool idle = false;      // to 0 of them
  bool operator==(const Echo&) const = default;
};

class Settings : public AppliedOptions {
 public:
  // What may be set: whole sections ("training") and single keys ("stream.bind"); defaults of all of them are present.
  explicit Settings(std::vector<std::string> sections);

  // Unknown keys are kUsage (did you mean ...), bad TOML and bad values kConfig, all with file:line:col. One file
  // serves several verbs: keys of other known sections are checked and otherwise left alone (unread names
  // them).
  void load_file(const std::string& path);
  void load_text(std::string_view text, const std::string& path);
  // "key=value", value in TOML syntax; a word for a string key may go without quotes. kUsage for a key that is unknown
  // or of a section this verb does not read, kConfig for a value of the wrong type or out of range.
  void set(std::string_view assignment, std::string_view origin);
  void set_value(std::string_view key, Json value, std::string_view origin);

  bool get_bool(std::string_view key) const;
  int64_t get_int(std::string_view key) const;
  double get_float(std::string_view key) const;
  std::string get_string(std::string_view key) const;
  std::vector<std::string> get_strings(std::string_view key) const;
  std::vector<int64_t> get_ints(std::string_view key) const;
  const Json& get_table(std::string_view key) const;  // an object or a string
  std::string shown(std::string_view key) const;      // the value as TOML, a string without its quotes
  std::string origin(std::string_view key) const;     // "default", "demo.toml:12:1", "--set", "--ranks"
  bool given(std::string_view key) const;             // not a default

  std::vector<std::string> given_keys() const;  // in schema order
  const std::vector<std::string>& unread() const { return unread_; }

  // The code that makes a setting true says so. `to_what` begins with a count where there is one: "2 tables".
  void applied(std::string_view key, std::string_view value, std::string_view to_what, std::string_view by) override;
  std::vector<Echo> echo(bool given_only = false) const;  // in schema order
  // Keys that were given but that nobody applied. A verb ends its set-up by refusing them (kConfig).
  std::vector<std::string> unapplied() const;

  Json resolved() const;              // {"training": {...}, ...}
  std::string resolved_toml() const;  // with the origin of each value as a comment
  std::string digest() const;         // SHA-256 of resolved()

 private:
  struct Entry {
    const Key* key = nullptr;
    Json value;
    std::string origin = "default";
    std::vector<Echo> applied;
  };
  const Entry& entry(std::string_view key) const;
  std::string suggestion(std::string_view key) const;  // " (did you mean X?)" or ""

  std::vector<std::string> sections_, unread_;
  std::map<std::string, Entry, std::less<>> entries_;
};

// The nearest of `candidates` to `word` (edit distance), or "" if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);
// The sections of schema(), in its order.
std::vector<std::string> section_names();
// Is `key` among `names`, each a section or a key?
bool reads(const std::vector<std::string>& names, std::string_view key);

}  // namespace sf::config
