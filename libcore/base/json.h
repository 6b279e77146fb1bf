// SPDX-License-Identifier: Apache-2.0
// JSON values that keep the order of their keys. The parser (nlohmann's) lives in json.cpp alone.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace sf {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;  // null
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(int value) : value_(int64_t{value}) {}
  Json(int64_t value) : value_(value) {}
  Json(uint64_t value) : value_(static_cast<int64_t>(value)) {}
  Json(double value) : value_(value) {}
  Json(const char* text) : value_(std::string(text)) {}
  Json(std::string_view text) : value_(std::string(text)) {}
  Json(std::string text) : value_(std::move(text)) {}
  Json(Array items) : value_(std::move(items)) {}
  Json(Object members) : value_(std::move(members)) {}
  static Json object() { return Json(Object{}); }
  static Json array() { return Json(Array{}); }

  // Throws kData: "ORIGIN:LINE:COLUMN: what is wrong". Duplicate keys are refused. Nesting is bounded (512).
  static Json parse(std::string_view text, std::string_view origin);
  // indent < 0: one line, ", " and ": " absent (compact); else pretty. ASCII stays ASCII, UTF-8 is written as it is.
  std::string dump(int indent = -1) const;

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  bool is_number() const { return is_int() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  const char* type_name() const;

  // Typed access: throws kData saying what was wanted and what was found. as_double accepts integers.
  bool as_bool() const;
  int64_t as_int() const;
  double as_double() const;
  const std::string& as_string() const;
  const Array& as_array() const;
  const Object& as_object() const;
  Array& as_array();
  Object& as_object();

  // Object look-ups. find: null pointer if absent; at: throws kData naming the key; get_*: default if absent or null.
  const Json* find(std::string_view key) const;
  const Json& at(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  int64_t get_int(std::string_view key, int64_t otherwise) const;
  double get_double(std::string_view key, double otherwise) const;
  bool get_bool(std::string_view key, bool otherwise) const;
  std::string get_string(std::string_view key, std::string_view otherwise) const;
  // Sets or replaces a member, making a null into an object first. Returns *this for chains.
  Json& set(std::string_view key, Json value);
  void push(Json value);

  friend bool operator==(const Json&, const Json&) = default;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

// Shortest text that reads back as the same double.
std::string double_text(double value);

}  // namespace sf
