// SPDX-License-Identifier: Apache-2.0
// What one rendering carries: where it is, what it may still spend, and Python's operators on values.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/template.h"
#include "text/template_value.h"

namespace sf::text {

// A template's text with positions for messages.
struct TemplateSource {
  std::string origin;
  std::string text;                    // line ends normalised to \n
  std::string place(size_t at) const;  // "ORIGIN:LINE:COLUMN", both from 1, columns in characters
};

constexpr size_t kMaxTemplateDepth = 200;              // nested blocks, expressions, macro calls
constexpr size_t kMaxTemplateText = size_t{16} << 20;  // bytes of one string
constexpr uint64_t kMaxTemplateSteps = 10'000'000;

struct Runtime {
  const TemplateSource& source;
  Moment now;
  size_t at = 0;  // of the node that is being evaluated
  uint64_t steps = 0;
  size_t depth = 0;
  std::vector<Value::NamespacePtr> namespaces{};  // all that were made; emptied at the end

  [[noreturn]] void wrong(std::string_view what) const;        // kData, with the place
  [[noreturn]] void unsupported(std::string_view what) const;  // kConfig, with the place
  void charge(uint64_t amount);
  void charge_bytes(size_t size);      // a string of this size is made
  void check_size(size_t size) const;  // a string grows to this size
};

// Binds a call to parameter names: the result has one entry a name, empty where nothing was given.
std::vector<std::optional<Value>> bind(Runtime& runtime, std::string_view what, Args& args,
                                       std::initializer_list<std::string_view> names, size_t required = 0);
// The value as a type, or kData naming `what`.
int64_t want_int(Runtime& runtime, std::string_view what, const Value& value);
const std::string& want_string(Runtime& runtime, std::string_view what, const Value& value);

Value binary(Runtime& runtime, std::string_view op, const Value& a, const Value& b);  // + - * / // % ** ~
bool compare(Runtime& runtime, std::string_view op, const Value& a, const Value& b);  // == != < <= > >= in "not in"
Value negate(Runtime& runtime, const Value& value, bool minus);
bool less(Runtime& runtime, const Value& a, const Value& b);
bool contains(Runtime& runtime, const Value& container, const Value& item);
Value attribute(Runtime& runtime, const Value& object, const std::string& name);  // a.name
Value subscript(Runtime& runtime, const Value& object, const Value& key);         // a[key]
Value slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step);
std::shared_ptr<const ListValue> iterate(Runtime& runtime, const Value& value);  // items; keys of a dict; characters
int64_t length_of(Runtime& runtime, const Value& value);
// "a.b" or an index, as filters take it.
Value path_of(Runtime& runtime, const Value& object, const Value& path);

// Bound method, or nothing if `object` has none of this name.
std::optional<Value> method(const Value& object, const std::string& name);

using Filter = Value (*)(Runtime&, const Value& input, Args& args);
using Test = bool (*)(Runtime&, const Value& input, Args& args);
Filter find_filter(std::string_view name);  // null: unknown
Test find_test(std::string_view name);
// range, namespace, dict, raise_exception, strftime_now.
const std::vector<std::pair<std::string, Value>>& global_functions();

}  // namespace sf::text
