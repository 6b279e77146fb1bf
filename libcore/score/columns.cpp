// SPDX-License-Identifier: Apache-2.0
#include "score/columns.h"

#include <fmt/core.h>

#include "base/error.h"
#include "score/aime.h"
#include "score/strings.h"

namespace sf::score {
namespace {

constexpr size_t kMostShown = 60;  // bytes of a value in a message

std::string shown(const Json& value) {
  std::string text = value.dump();
  return text.size() > kMostShown ? repaired_utf8(text.substr(0, kMostShown)) + "..." : text;
}

const Json* either(const Json& message, std::string_view name, std::string_view other) {
  const Json* found = message.find(name);
  return found ? found : message.find(other);
}

std::string role_of(const Json& message) {
  const Json* role = either(message, "role", "from");
  if (!role || !role->is_string()) return "";
  return role->as_string() == "human" ? "user" : role->as_string() == "gpt" ? "assistant" : role->as_string();
}

}  // namespace

Columns::Columns(const Json& row, std::string where) : where_(std::move(where)) {
  SF_CHECK(row.is_object(), Exit::kData, "{}: wanted an object, found {}", where_, row.type_name());
  for (const auto& [key, value] : row.as_object()) {
    if (value.is_null()) continue;
    auto [known, is_new] = by_name_.emplace(lowered(key), Column{key, &value});
    if (!is_new && *known->second.value != value) contradict(known->second, {key, &value});
  }
}

Column Columns::first(Names names) const {
  for (std::string_view name : names)
    if (auto found = by_name_.find(name); found != by_name_.end()) return found->second;
  return {};
}

Column Columns::one(Names names, const Same& same) const {
  const Column found = first(names);
  if (!found) return found;
  for (std::string_view name : names)
    if (auto other = by_name_.find(name); other != by_name_.end() && !same(*found.value, *other->second.value))
      contradict(found, other->second);
  return found;
}

void Columns::note_unknown(const std::function<bool(std::string_view)>& known, std::set<std::string>& unknown) const {
  for (const auto& [name, column] : by_name_)
    if (!known(name)) unknown.emplace(column.name);
}

void Columns::odd(const Column& column, std::string_view wanted) const {
  fail(Exit::kData, "{}: {} is {}; wanted {}", where_, column.name, shown(*column.value), wanted);
}

void Columns::contradict(const Column& a, const Column& b) const {
  fail(Exit::kData, "{}: {} is {}, but {} is {}; keep one of the columns", where_, a.name, shown(*a.value), b.name,
       shown(*b.value));
}

std::optional<std::string> Columns::text(const Column& column) const {
  if (!column) return std::nullopt;
  if (!column.value->is_string()) odd(column, "a text");
  return column.value->as_string();
}

std::optional<int64_t> Columns::whole(const Column& column, int64_t most) const {
  if (!column) return std::nullopt;
  if (!column.value->is_int() || column.value->as_int() < 0 || column.value->as_int() > most)
    odd(column, fmt::format("a whole number from 0 to {}", most));
  return column.value->as_int();
}

std::string words_of(const Columns& row, const Column& chat, std::string_view role) {
  if (!chat.value->is_array() || chat.value->as_array().empty()) row.odd(chat, "a text or a list of messages");
  std::string text;
  for (const Json& message : chat.value->as_array()) {
    if (!message.is_object()) row.odd(chat, "a text or a list of messages, each an object");
    if (!role.empty() && role_of(message) != role) continue;
    const Json* content = either(message, "content", "value");
    if (content && content->is_string())
      text = role.empty() ? text + content->as_string() + "\n" : content->as_string();
  }
  return text;
}

std::string asked_words(const Columns& row, const Column& column) {
  return column.value->is_string() ? column.value->as_string() : words_of(row, column, "user");
}

bool same_gold(std::string_view a, std::string_view b) {
  if (trimmed(a) == trimmed(b)) return true;
  auto left = aime_value(a).value, right = aime_value(b).value;
  return left && left == right;
}

}  // namespace sf::score
