// SPDX-License-Identifier: Apache-2.0
#include "config/origins.h"

#include <algorithm>

namespace sf::config {
namespace {

// Where `key` stands in `text` as a whole name; its end if it does not.
size_t place_of_word(std::string_view text, std::string_view key) {
  auto goes_on = [](char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  auto is_within = [&](size_t end) {  // a dot goes on only with a letter behind it: else it ends a sentence
    return end < text.size() &&
           (goes_on(text[end]) || (text[end] == '.' && end + 1 < text.size() && goes_on(text[end + 1])));
  };
  for (size_t at = 0; (at = text.find(key, at)) != std::string_view::npos; at += key.size())
    if ((at == 0 || (!goes_on(text[at - 1]) && text[at - 1] != '.')) && !is_within(at + key.size())) return at;
  return text.size();
}

}  // namespace

std::string origin_of_named(const Settings& settings, std::string_view text) {
  size_t first = text.size();
  std::string origin;
  for (const std::string& key : settings.given_keys()) {
    const std::string where = settings.origin(key);
    const size_t at = place_of_word(text, key);
    if (at < first && text.find(where) == std::string_view::npos) first = at, origin = where;
  }
  return origin;
}

bool is_changed(const Settings& settings, const Key& key) {
  if (std::ranges::count(settings.given_keys(), key.name) == 0) return false;
  const Json& value = settings.get_table(key.name);
  if (value.is_number() && key.otherwise.is_number()) return value.as_double() != key.otherwise.as_double();
  return value != key.otherwise;
}

}  // namespace sf::config
