// SPDX-License-Identifier: Apache-2.0
// Values of the template language, with Python's rules for truth, equality, order and printing.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"

namespace sf::text {

class Value;
struct Runtime;

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// `depth`: levels of values inside, bounded so that printing and destruction may recurse.
constexpr uint32_t kMaxValueDepth = 1000;

struct ListValue {
  std::vector<Value> items;
  bool tuple = false;
  uint32_t depth = 1;
};
struct DictValue {
  uint32_t depth = 1;
  std::vector<std::pair<std::string, Value>> items;  // in order of insertion
  const Value* find(std::string_view key) const;
  void set(std::string_view key, Value value);
};
// The one mutable value: namespace(...) of the template.
struct NamespaceValue {
  DictValue members;
};
// What `loop` is inside a for block.
struct LoopValue {
  std::shared_ptr<const ListValue> items;
  size_t index = 0;
  std::vector<Value> changed;
  bool changed_known = false;
};
struct FunctionValue {
  std::string name;
  std::function<Value(Runtime&, Args&)> call;
  uint32_t depth = 1;
};

class Value {
 public:
  struct Undefined {
    std::shared_ptr<const std::string> what;  // "'x' is undefined"
  };
  using StringPtr = std::shared_ptr<const std::string>;
  using ListPtr = std::shared_ptr<const ListValue>;
  using DictPtr = std::shared_ptr<const DictValue>;
  using NamespacePtr = std::shared_ptr<NamespaceValue>;
  using LoopPtr = std::shared_ptr<LoopValue>;
  using FunctionPtr = std::shared_ptr<const FunctionValue>;

  Value() = default;  // none
  Value(bool value) : value_(value) {}
  Value(int64_t value) : value_(value) {}
  Value(int value) : value_(int64_t{value}) {}
  Value(double value) : value_(value) {}
  Value(std::string value) : value_(std::make_shared<const std::string>(std::move(value))) {}
  Value(std::string_view value) : Value(std::string(value)) {}
  Value(const char* value) : Value(std::string(value)) {}
  Value(ListPtr value) : value_(std::move(value)) {}
  Value(DictPtr value) : value_(std::move(value)) {}
  Value(NamespacePtr value) : value_(std::move(value)) {}
  Value(LoopPtr value) : value_(std::move(value)) {}
  Value(FunctionPtr value) : value_(std::move(value)) {}
  static Value undefined(std::string what) {
    Value value;
    value.value_ = Undefined{std::make_shared<const std::string>(std::move(what))};
    return value;
  }
  static Value list(std::vector<Value> items, bool tuple = false);  // kData beyond kMaxValueDepth
  static Value dict(DictValue items);
  static Value from_json(const Json& json);

  bool is_undefined() const { return std::holds_alternative<Undefined>(value_); }
  bool is_none() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }  // not bool
  bool is_double() const { return std::holds_alternative<double>(value_); }
  bool is_number() const { return is_int() || is_double() || is_bool(); }
  bool is_string() const { return std::holds_alternative<StringPtr>(value_); }
  bool is_list() const { return std::holds_alternative<ListPtr>(value_); }
  bool is_dict() const { return std::holds_alternative<DictPtr>(value_); }
  bool is_namespace() const { return std::holds_alternative<NamespacePtr>(value_); }
  bool is_loop() const { return std::holds_alternative<LoopPtr>(value_); }
  bool is_function() const { return std::holds_alternative<FunctionPtr>(value_); }

  // Requires the matching is_*().
  const std::string& why_undefined() const { return *std::get<Undefined>(value_).what; }
  int64_t as_int() const { return is_bool() ? int64_t{std::get<bool>(value_)} : std::get<int64_t>(value_); }  // or bool
  double as_double() const { return is_double() ? std::get<double>(value_) : static_cast<double>(as_int()); }
  const std::string& as_string() const { return *std::get<StringPtr>(value_); }
  const ListPtr& as_list() const { return std::get<ListPtr>(value_); }
  const std::vector<Value>& items() const { return as_list()->items; }
  const DictPtr& as_dict() const { return std::get<DictPtr>(value_); }
  const NamespacePtr& as_namespace() const { return std::get<NamespacePtr>(value_); }
  const LoopPtr& as_loop() const { return std::get<LoopPtr>(value_); }
  const FunctionPtr& as_function() const { return std::get<FunctionPtr>(value_); }

  uint32_t depth() const;         // 0 for plain values and namespaces
  const char* type_name() const;  // Python's: "str", "int", "NoneType", ...
  bool truthy() const;
  bool equals(const Value& other) const;

 private:
  std::variant<std::monostate, Undefined, bool, int64_t, double, StringPtr, ListPtr, DictPtr, NamespacePtr, LoopPtr,
               FunctionPtr>
      value_;
};

std::string print_value(Runtime& runtime, const Value& value);  // str()
std::string repr_value(Runtime& runtime, const Value& value);   // repr()
std::string python_float(double value);
// How json.dumps writes. indent < 0: one line.
struct JsonForm {
  int indent = -1;
  bool sort_keys = false, ensure_ascii = false;
  std::string_view item_separator = ", ", key_separator = ": ";
};
// kData for what JSON lacks.
std::string json_value(Runtime& runtime, const Value& value, const JsonForm& form);

}  // namespace sf::text
