// SPDX-License-Identifier: Apache-2.0
// Columns of a row by what they mean: whatever the case of their names, whichever of several names people gave them.
// What contradicts itself, or is of an odd kind, is refused: kData, "ORIGIN:LINE: ...".
// Private to this room.
#pragma once
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/json.h"

namespace sf::score {

struct Column {
  std::string_view name;        // as the row has it
  const Json* value = nullptr;  // null: there is none; never a JSON null
  explicit operator bool() const { return value != nullptr; }
};

class Columns {
 public:
  using Names = std::initializer_list<std::string_view>;  // in lower case, the preferred one first
  using Same = std::function<bool(const Json&, const Json&)>;

  // `row` must outlive it. kData unless it is an object, or if two names differ in case alone and in what they hold.
  Columns(const Json& row, std::string where);
  const std::string& where() const { return where_; }  // "ORIGIN:LINE"
  bool has(std::string_view name) const { return by_name_.contains(name); }
  // The first that is there.
  Column first(Names names) const;
  // The same; kData naming both if another one says something else.
  Column one(Names names, const Same& same) const;
  // Names of columns that are not in `known`, as the row has them.
  void note_unknown(const std::function<bool(std::string_view)>& known, std::set<std::string>& unknown) const;

  [[noreturn]] void odd(const Column& column, std::string_view wanted) const;
  [[noreturn]] void contradict(const Column& a, const Column& b) const;
  // Of a column that may be absent.
  std::optional<std::string> text(const Column& column) const;
  std::optional<int64_t> whole(const Column& column, int64_t most) const;  // from 0

 private:
  std::string where_;
  std::map<std::string, Column, std::less<>> by_name_;  // names in lower case
};

// What a chat's messages of one role say, the last of them; of all roles, one behind the other, if `role` is empty.
// Roles and texts as role and content, or as from and value.
std::string words_of(const Columns& row, const Column& chat, std::string_view role);
// A column that holds a text or a chat: the text, or what the user says last.
std::string asked_words(const Columns& row, const Column& column);

// Whether two golds are one answer: equal texts, or equal integers.
bool same_gold(std::string_view a, std::string_view b);

}  // namespace sf::score
