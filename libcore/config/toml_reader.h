// SPDX-License-Identifier: Apache-2.0
// TOML text to a flat list of assignments. The parser (toml++) lives in toml_reader.cpp alone.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace sf::config {

struct Assignment {
  std::string key;  // dotted path: "training.learning_rate"
  Json value;
  int line = 0, column = 0;  // of the key; from 1
  bool is_date = false;      // dates and times have no Json form; value is null
};

// Every leaf of the document, in the document's order of lines. Throws kConfig "ORIGIN:LINE:COL: ..." on a syntax
// error.
// A table whose path is in `whole` is one value, an object; any other is a prefix of its keys.
std::vector<Assignment> read_toml(std::string_view text, std::string_view origin,
                                  const std::set<std::string>& whole = {});
// One TOML value, as after "key = "; none if the text is not one, or is a date.
std::optional<Json> read_toml_value(std::string_view text);
// The value as TOML text.
std::string toml_text(const Json& value);

}  // namespace sf::config
