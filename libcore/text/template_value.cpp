// SPDX-License-Identifier: Apache-2.0
#include "text/template_value.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "text/template_runtime.h"
#include "text/unicode.h"

namespace sf::text {
namespace {

bool printable(char32_t c) {
  return !(c < 0x20 || (c >= 0x7F && c < 0xA1) || c == 0xAD || (python_space(c) && c != ' ') ||
           (c >= 0x200B && c <= 0x200F) || c == 0xFEFF);
}

std::string repr_string(const std::string& text) {
  char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (char32_t c : to_code_points(text)) {
    if (c == static_cast<char32_t>(quote) || c == '\\')
      out += '\\', out += static_cast<char>(c);
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (printable(c))
      append_utf8(out, c);
    else if (c < 0x100)
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    else
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
  }
  return out + quote;
}

std::string json_escape(char32_t c) {
  if (c < 0x10000) return fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
  uint32_t rest = static_cast<uint32_t>(c) - 0x10000;
  return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
}

std::string json_string(const std::string& text, bool ensure_ascii) {
  static constexpr std::string_view kFrom = "\"\\\n\r\t\b\f", kTo = "\"\\nrtbf";
  std::string out = "\"";
  for (char32_t c : to_code_points(text)) {
    size_t named = c < 0x80 ? kFrom.find(static_cast<char>(c)) : kFrom.npos;
    if (named != kFrom.npos)
      out += '\\', out += kTo[named];
    else if (c < 0x20 || (ensure_ascii && c > 0x7E))
      out += json_escape(c);
    else
      append_utf8(out, c);
  }
  return out + '"';
}

void check_depth(uint32_t depth) {
  SF_CHECK(depth < kMaxValueDepth, Exit::kData, "a value of the template is nested deeper than {} levels",
           kMaxValueDepth);
}

struct JsonWriter {
  Runtime& runtime;
  const JsonForm& form;
  std::string out;

  void line(int depth) {
    if (form.indent < 0) return;
    out += '\n';
    out.append(static_cast<size_t>(form.indent) * static_cast<size_t>(depth), ' ');
  }

  template <typename Items, typename Write>
  void container(char open, char close, const Items& items, int depth, Write write) {
    out += open;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out += form.item_separator;
      first = false;
      line(depth + 1);
      write(item);
    }
    if (!first) line(depth);
    out += close;
  }

  void write(const Value& value, int depth) {
    runtime.charge(1);
    runtime.check_size(out.size());
    if (depth > 100) runtime.wrong("tojson: nested too deeply");
    if (value.is_none())
      out += "null";
    else if (value.is_bool())
      out += value.truthy() ? "true" : "false";
    else if (value.is_int())
      out += std::to_string(value.as_int());
    else if (value.is_double())
      out += python_float(value.as_double());
    else if (value.is_string())
      out += json_string(value.as_string(), form.ensure_ascii);
    else if (value.is_list())
      container('[', ']', value.items(), depth, [&](const Value& item) { write(item, depth + 1); });
    else if (value.is_dict()) {
      auto members = value.as_dict()->items;
      if (form.sort_keys)
        std::stable_sort(members.begin(), members.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
      container('{', '}', members, depth, [&](const auto& member) {
        out += json_string(member.first, form.ensure_ascii);
        out += form.key_separator;
        write(member.second, depth + 1);
      });
    } else {
      runtime.wrong(fmt::format("tojson: a value of type {} has no JSON form", value.type_name()));
    }
  }
};

void write_repr(Runtime& runtime, const Value& value, std::string& out) {
  runtime.charge(1);
  runtime.check_size(out.size());
  if (value.is_none())
    out += "None";
  else if (value.is_undefined())
    out += "Undefined";
  else if (value.is_bool())
    out += value.truthy() ? "True" : "False";
  else if (value.is_int())
    out += std::to_string(value.as_int());
  else if (value.is_double())
    out += python_float(value.as_double());
  else if (value.is_string())
    out += repr_string(value.as_string());
  else if (value.is_list()) {
    bool tuple = value.as_list()->tuple;
    out += tuple ? '(' : '[';
    for (size_t i = 0; i < value.items().size(); ++i) {
      if (i) out += ", ";
      write_repr(runtime, value.items()[i], out);
    }
    if (tuple && value.items().size() == 1) out += ',';
    out += tuple ? ')' : ']';
  } else if (value.is_dict()) {
    out += '{';
    bool first = true;
    for (const auto& [key, member] : value.as_dict()->items) {
      if (!first) out += ", ";
      first = false;
      out += repr_string(key) + ": ";
      write_repr(runtime, member, out);
    }
    out += '}';
  } else {
    out += fmt::format("<{}>", value.type_name());
  }
}

}  // namespace

const Value* DictValue::find(std::string_view key) const {
  for (const auto& [name, value] : items)
    if (name == key) return &value;
  return nullptr;
}

void DictValue::set(std::string_view key, Value value) {
  for (auto& [name, old] : items) {
    if (name != key) continue;
    old = std::move(value);
    return;
  }
  items.emplace_back(std::string(key), std::move(value));
}

Value Value::list(std::vector<Value> items, bool tuple) {
  uint32_t depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  check_depth(depth);
  return Value(ListPtr(std::make_shared<ListValue>(ListValue{std::move(items), tuple, depth + 1})));
}
Value Value::dict(DictValue items) {
  uint32_t depth = 0;
  for (const auto& [key, item] : items.items) depth = std::max(depth, item.depth());
  check_depth(depth);
  items.depth = depth + 1;
  return Value(DictPtr(std::make_shared<DictValue>(std::move(items))));
}

uint32_t Value::depth() const {
  if (is_list()) return as_list()->depth;
  if (is_dict()) return as_dict()->depth;
  if (is_loop()) return as_loop()->items->depth + 1;
  return is_function() ? as_function()->depth : 0;
}

Value Value::from_json(const Json& json) {
  if (json.is_null()) return {};
  if (json.is_bool()) return json.as_bool();
  if (json.is_int()) return json.as_int();
  if (json.is_number()) return json.as_double();
  if (json.is_string()) return json.as_string();
  if (json.is_array()) {
    std::vector<Value> items;
    for (const Json& item : json.as_array()) items.push_back(from_json(item));
    return list(std::move(items));
  }
  DictValue members;
  for (const auto& [key, member] : json.as_object()) members.items.emplace_back(key, from_json(member));
  return dict(std::move(members));
}

const char* Value::type_name() const {
  static constexpr const char* kNames[] = {"NoneType", "Undefined", "bool",      "int",         "float",   "str",
                                           "list",     "dict",      "Namespace", "LoopContext", "function"};
  return is_list() && as_list()->tuple ? "tuple" : kNames[value_.index()];
}

bool Value::truthy() const {
  if (is_none() || is_undefined()) return false;
  if (is_bool() || is_int()) return as_int() != 0;
  if (is_double()) return as_double() != 0;
  if (is_string()) return !as_string().empty();
  if (is_list()) return !items().empty();
  if (is_dict()) return !as_dict()->items.empty();
  return true;
}

bool Value::equals(const Value& other) const {
  if (is_number() && other.is_number()) {
    if (is_double() || other.is_double()) return as_double() == other.as_double();
    return as_int() == other.as_int();
  }
  if (value_.index() != other.value_.index()) return false;
  if (is_none() || is_undefined()) return true;
  if (is_string()) return as_string() == other.as_string();
  if (is_list()) {
    if (as_list()->tuple != other.as_list()->tuple) return false;
    return std::equal(items().begin(), items().end(), other.items().begin(), other.items().end(),
                      [](const Value& a, const Value& b) { return a.equals(b); });
  }
  if (is_dict()) {
    const auto& mine = as_dict()->items;
    if (mine.size() != other.as_dict()->items.size()) return false;
    return std::all_of(mine.begin(), mine.end(), [&](const auto& member) {
      const Value* found = other.as_dict()->find(member.first);
      return found && member.second.equals(*found);
    });
  }
  if (is_namespace()) return as_namespace() == other.as_namespace();
  if (is_loop()) return as_loop() == other.as_loop();
  return as_function() == other.as_function();
}

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[64];
  double size = std::fabs(value);
  bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  auto end =
      std::to_chars(text, text + sizeof text, value, plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string out(text, end.ptr);
  if (plain && out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string print_value(Runtime& runtime, const Value& value) {
  if (value.is_string()) return value.as_string();
  if (value.is_undefined()) return "";
  return repr_value(runtime, value);
}

std::string repr_value(Runtime& runtime, const Value& value) {
  std::string out;
  write_repr(runtime, value, out);
  return out;
}

std::string json_value(Runtime& runtime, const Value& value, const JsonForm& form) {
  JsonWriter writer{runtime, form, {}};
  writer.write(value, 0);
  runtime.charge_bytes(writer.out.size());
  return std::move(writer.out);
}

}  // namespace sf::text
