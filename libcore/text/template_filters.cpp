// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/error.h"
#include "text/template_runtime.h"
#include "text/unicode.h"

namespace sf::text {
namespace {

// A filter that a method of strings already does.
Value by_method(Runtime& runtime, const Value& input, const char* name, Args& args) {
  auto bound = method(Value(print_value(runtime, input)), name);
  SF_ASSERT(bound);
  return bound->as_function()->call(runtime, args);
}
template <const char* kName>
Value string_filter(Runtime& runtime, const Value& input, Args& args) {
  return by_method(runtime, input, kName, args);
}
constexpr char kUpper[] = "upper", kLower[] = "lower", kCapitalize[] = "capitalize", kReplace[] = "replace";

Value trim(Runtime& runtime, const Value& input, Args& args) {
  return by_method(runtime, input, "strip", args);
}

// Unlike the method: words end at white space and - ( { [ < only.
Value title(Runtime& runtime, const Value& input, Args& args) {
  bind(runtime, "title", args, {});
  std::u32string text = to_code_points(print_value(runtime, input)), out;
  runtime.charge_bytes(text.size());
  auto border = [](char32_t c) {
    return python_space(c) || std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos;
  };
  for (size_t i = 0; i < text.size();) {
    if (border(text[i])) {
      out += text[i++];
      continue;
    }
    append_upper(out, text[i++]);
    size_t end = i;
    while (end < text.size() && !border(text[end])) ++end;
    std::u32string_view rest = std::u32string_view(text).substr(i, end - i);
    for (size_t k = 0; k < rest.size(); ++k) append_lower(out, rest, k);
    i = end;
  }
  return to_utf8(out);
}

Value length(Runtime& runtime, const Value& input, Args& args) {
  bind(runtime, "length", args, {});
  return length_of(runtime, input);
}

Value default_value(Runtime& runtime, const Value& input, Args& args) {
  auto bound = bind(runtime, "default", args, {"default_value", "boolean"});
  bool falsy = bound[1] && bound[1]->truthy() && !input.truthy();
  if (input.is_undefined() || falsy) return bound[0].value_or(Value(""));
  return input;
}

Value tojson(Runtime& runtime, const Value& input, Args& args) {
  auto bound = bind(runtime, "tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  int64_t indent = -1;
  if (bound[1] && !bound[1]->is_none()) indent = want_int(runtime, "tojson: indent", *bound[1]);
  if (indent > 64) runtime.wrong("tojson: indent is too large");
  std::string item = indent >= 0 ? "," : ", ", key = ": ";
  if (bound[2] && !bound[2]->is_none()) {
    auto parts = iterate(runtime, *bound[2]);
    if (parts->items.size() != 2) runtime.wrong("tojson: wanted two separators");
    item = want_string(runtime, "tojson: separator", parts->items[0]);
    key = want_string(runtime, "tojson: separator", parts->items[1]);
  }
  JsonForm form{static_cast<int>(indent), bound[3] && bound[3]->truthy(), bound[0] && bound[0]->truthy(), item, key};
  return json_value(runtime, input, form);
}

Value join(Runtime& runtime, const Value& input, Args& args) {
  auto bound = bind(runtime, "join", args, {"d", "attribute"});
  std::string between = bound[0] ? print_value(runtime, *bound[0]) : "";
  std::string out;
  bool first = true;
  for (const Value& item : iterate(runtime, input)->items) {
    if (!first) out += between;
    first = false;
    out += print_value(runtime, bound[1] ? path_of(runtime, item, *bound[1]) : item);
    runtime.charge(1);
    runtime.check_size(out.size());
  }
  runtime.charge_bytes(out.size());
  return out;
}

Value first(Runtime& runtime, const Value& input, Args& args) {
  bind(runtime, "first", args, {});
  auto items = iterate(runtime, input);
  return items->items.empty() ? Value::undefined("there is no first item") : items->items.front();
}
Value last(Runtime& runtime, const Value& input, Args& args) {
  bind(runtime, "last", args, {});
  auto items = iterate(runtime, input);
  return items->items.empty() ? Value::undefined("there is no last item") : items->items.back();
}
Value list(Runtime& runtime, const Value& input, Args& args) {
  bind(runtime, "list", args, {});
  return Value::list(iterate(runtime, input)->items);
}
Value string(Runtime& runtime, const Value& input, Args& args) {
  bind(runtime, "string", args, {});
  return print_value(runtime, input);
}
Value reverse(Runtime& runtime, const Value& input, Args& args) {
  bind(runtime, "reverse", args, {});
  if (input.is_string()) return slice(runtime, input, Value(), Value(), Value(-1));
  std::vector<Value> items = iterate(runtime, input)->items;
  std::reverse(items.begin(), items.end());
  return Value::list(std::move(items));
}

Value items(Runtime& runtime, const Value& input, Args& args) {
  bind(runtime, "items", args, {});
  if (input.is_undefined()) return Value::list({});
  if (!input.is_dict()) runtime.wrong("items: can only get item pairs from a mapping");
  return method(input, "items")->as_function()->call(runtime, args);
}

// Python's int() and float() of a text: white space around and single underscores between digits are fine.
std::string number_text(Runtime& runtime, const Value& input) {
  Args none;
  std::string text = by_method(runtime, input, "strip", none).as_string(), out;
  auto digit = [](char c) { return c >= '0' && c <= '9'; };
  for (size_t i = 0; i < text.size(); ++i) {
    bool joint = text[i] == '_' && i > 0 && i + 1 < text.size() && digit(text[i - 1]) && digit(text[i + 1]);
    if (!joint) out += text[i];
  }
  return out;
}

template <typename Number>
std::optional<Number> parse(std::string_view text) {
  if (text.starts_with('+') && text.size() > 1 && text[1] != '-') text.remove_prefix(1);
  Number value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc()) return value;
  if constexpr (std::is_floating_point_v<Number>) {
    if (text.find("e-") == text.npos && text.find("E-") == text.npos)
      return text.starts_with('-') ? -INFINITY : INFINITY;
    return Number{0};
  }
  return std::nullopt;
}

Value to_int(Runtime& runtime, const Value& input, Args& args) {
  auto bound = bind(runtime, "int", args, {"default", "base"});
  if (bound[1] && !(bound[1]->is_int() && bound[1]->as_int() == 10))
    runtime.unsupported("int with a base other than 10");
  Value otherwise = bound[0].value_or(Value(0));
  if (input.is_int() || input.is_bool()) return input.as_int();
  std::optional<double> real;
  if (input.is_double()) real = input.as_double();
  if (input.is_string()) {
    std::string text = number_text(runtime, input);
    if (auto whole = parse<int64_t>(text)) return *whole;
    real = parse<double>(text);
  }
  if (!real || !(std::fabs(*real) < 9.2e18)) return otherwise;
  return static_cast<int64_t>(std::trunc(*real));
}

Value to_float(Runtime& runtime, const Value& input, Args& args) {
  auto bound = bind(runtime, "float", args, {"default"});
  if (input.is_number()) return input.as_double();
  if (input.is_string())
    if (auto real = parse<double>(number_text(runtime, input))) return *real;
  return bound[0].value_or(Value(0.0));
}

Value absolute(Runtime& runtime, const Value& input, Args& args) {
  bind(runtime, "abs", args, {});
  if (input.is_double()) return std::fabs(input.as_double());
  int64_t value = want_int(runtime, "abs", input);
  return value < 0 ? negate(runtime, value, true) : Value(value);
}

Value round(Runtime& runtime, const Value& input, Args& args) {
  auto bound = bind(runtime, "round", args, {"precision", "method"});
  if (!input.is_number()) runtime.wrong(fmt::format("round: wanted a number, found {}", input.type_name()));
  int64_t precision = bound[0] ? want_int(runtime, "round: precision", *bound[0]) : 0;
  std::string how = bound[1] ? want_string(runtime, "round: method", *bound[1]) : "common";
  if (precision > 300 || precision < -300) runtime.wrong("round: precision is too large");
  double scale = std::pow(10.0, static_cast<double>(precision)), value = input.as_double();
  if (how == "ceil") return std::ceil(value * scale) / scale;
  if (how == "floor") return std::floor(value * scale) / scale;
  if (how != "common") runtime.wrong("round: method must be common, ceil or floor");
  if (!input.is_double() && precision >= 0) return input.as_int();
  double rounded =
      precision >= 0 ? *parse<double>(fmt::format("{:.{}f}", value, precision)) : std::nearbyint(value * scale) / scale;
  return input.is_double() ? Value(rounded) : Value(static_cast<int64_t>(rounded));
}

Value sum(Runtime& runtime, const Value& input, Args& args) {
  auto bound = bind(runtime, "sum", args, {"attribute", "start"});
  Value total = bound[1].value_or(Value(0));
  for (const Value& item : iterate(runtime, input)->items)
    total = binary(runtime, "+", total, bound[0] && !bound[0]->is_none() ? path_of(runtime, item, *bound[0]) : item);
  return total;
}

// What sort, unique, min and max compare: an attribute of the item, letters folded unless case counts.
Value sort_key(Runtime& runtime, const Value& item, const std::optional<Value>& attribute, bool case_sensitive) {
  Value key = attribute && !attribute->is_none() ? path_of(runtime, item, *attribute) : item;
  if (case_sensitive || !key.is_string()) return key;
  Args none;
  return by_method(runtime, key, "lower", none);
}

std::vector<std::pair<Value, Value>> keyed(Runtime& runtime, const Value& input, const std::optional<Value>& attribute,
                                           bool case_sensitive) {
  std::vector<std::pair<Value, Value>> out;
  for (const Value& item : iterate(runtime, input)->items)
    out.emplace_back(sort_key(runtime, item, attribute, case_sensitive), item);
  return out;
}

void sort_keyed(Runtime& runtime, std::vector<std::pair<Value, Value>>& list, bool descending) {
  runtime.charge(list.size() * 20);
  for (const auto& [key, item] : list) less(runtime, key, key);  // what cannot be ordered is found before the sort
  std::stable_sort(list.begin(), list.end(), [&](const auto& a, const auto& b) {
    return descending ? less(runtime, b.first, a.first) : less(runtime, a.first, b.first);
  });
}

Value sort(Runtime& runtime, const Value& input, Args& args) {
  auto bound = bind(runtime, "sort", args, {"reverse", "case_sensitive", "attribute"});
  auto list = keyed(runtime, input, bound[2], bound[1] && bound[1]->truthy());
  sort_keyed(runtime, list, bound[0] && bound[0]->truthy());
  std::vector<Value> out;
  for (auto& [key, item] : list) out.push_back(std::move(item));
  return Value::list(std::move(out));
}

Value dictsort(Runtime& runtime, const Value& input, Args& args) {
  auto bound = bind(runtime, "dictsort", args, {"case_sensitive", "by", "reverse"});
  if (!input.is_dict()) runtime.wrong(fmt::format("dictsort: wanted a mapping, found {}", input.type_name()));
  std::string by = bound[1] ? want_string(runtime, "dictsort: by", *bound[1]) : "key";
  if (by != "key" && by != "value") runtime.wrong("dictsort: by must be 'key' or 'value'");
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.as_dict()->items) pairs.push_back(Value::list({Value(key), value}, true));
  auto list = keyed(runtime, Value::list(std::move(pairs)), Value(by == "key" ? 0 : 1), bound[0] && bound[0]->truthy());
  sort_keyed(runtime, list, bound[2] && bound[2]->truthy());
  std::vector<Value> out;
  for (auto& [key, item] : list) out.push_back(std::move(item));
  return Value::list(std::move(out));
}

Value unique(Runtime& runtime, const Value& input, Args& args) {
  auto bound = bind(runtime, "unique", args, {"case_sensitive", "attribute"});
  std::vector<Value> seen, out;
  for (auto& [key, item] : keyed(runtime, input, bound[1], bound[0] && bound[0]->truthy())) {
    runtime.charge(seen.size() + 1);
    if (std::any_of(seen.begin(), seen.end(), [&key = key](const Value& other) { return other.equals(key); })) continue;
    seen.push_back(key);
    out.push_back(item);
  }
  return Value::list(std::move(out));
}

template <bool kMax>
Value extreme(Runtime& runtime, const Value& input, Args& args) {
  auto bound = bind(runtime, kMax ? "max" : "min", args, {"case_sensitive", "attribute"});
  auto list = keyed(runtime, input, bound[1], bound[0] && bound[0]->truthy());
  if (list.empty()) return Value::undefined("there is no item to choose");
  const auto* best = &list[0];
  for (const auto& entry : list)
    if (kMax ? less(runtime, best->first, entry.first) : less(runtime, entry.first, best->first)) best = &entry;
  return best->second;
}

// The first positional argument of map, select and their kin: a name, and the arguments that belong to it.
std::string take_name(Runtime& runtime, std::string_view what, Args& args) {
  std::string name = want_string(runtime, what, args.positional[0]);
  args.positional.erase(args.positional.begin());
  return name;
}

Value map(Runtime& runtime, const Value& input, Args& args) {
  std::vector<Value> out;
  auto items = iterate(runtime, input);
  if (args.positional.empty()) {
    auto bound = bind(runtime, "map", args, {"attribute", "default"}, 1);
    for (const Value& item : items->items) {
      Value value = path_of(runtime, item, *bound[0]);
      out.push_back(value.is_undefined() && bound[1] ? *bound[1] : value);
    }
    return Value::list(std::move(out));
  }
  std::string name = take_name(runtime, "map: filter", args);
  Filter filter = find_filter(name);
  if (!filter) runtime.unsupported(fmt::format("filter '{}'", name));
  for (const Value& item : items->items) {
    runtime.charge(1);
    Args copy = args;
    out.push_back(filter(runtime, item, copy));
  }
  return Value::list(std::move(out));
}

template <bool kKeep, bool kAttribute>
Value select(Runtime& runtime, const Value& input, Args& args) {
  std::optional<Value> path;
  if (kAttribute) {
    if (args.positional.empty()) runtime.wrong("an attribute to select by is missing");
    path = args.positional[0];
    args.positional.erase(args.positional.begin());
  }
  Test test = nullptr;
  if (!args.positional.empty()) {
    std::string name = take_name(runtime, "select: test", args);
    test = find_test(name);
    if (!test) runtime.unsupported(fmt::format("test '{}'", name));
  }
  std::vector<Value> out;
  for (const Value& item : iterate(runtime, input)->items) {
    runtime.charge(1);
    Value value = path ? path_of(runtime, item, *path) : item;
    Args copy = args;
    if ((test ? test(runtime, value, copy) : value.truthy()) == kKeep) out.push_back(item);
  }
  return Value::list(std::move(out));
}

Value indent(Runtime& runtime, const Value& input, Args& args) {
  auto bound = bind(runtime, "indent", args, {"width", "first", "blank"});
  std::string pad = "    ";
  if (bound[0] && bound[0]->is_string())
    pad = bound[0]->as_string();
  else if (bound[0]) {
    int64_t width = want_int(runtime, "indent: width", *bound[0]);
    if (width > 1000) runtime.wrong("indent: width is too large");
    pad.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  bool with_first = bound[1] && bound[1]->truthy(), blank = bound[2] && bound[2]->truthy();
  std::string text = print_value(runtime, input), out;
  for (size_t at = 0, line = 0; at <= text.size(); ++line) {
    size_t end = std::min(text.find('\n', at), text.size());
    bool empty = end == at;
    if ((line > 0 || with_first) && (blank || !empty || (line == 0 && with_first))) out += pad;
    out.append(text, at, end - at);
    if (end < text.size()) out += '\n';
    runtime.check_size(out.size());
    at = end + 1;
  }
  runtime.charge_bytes(out.size());
  return out;
}

Value safe(Runtime& runtime, const Value& input, Args& args) {
  bind(runtime, "safe", args, {});
  return print_value(runtime, input);
}

}  // namespace

Filter find_filter(std::string_view name) {
  static const std::map<std::string_view, Filter> table = {{"abs", absolute},
                                                           {"capitalize", string_filter<kCapitalize>},
                                                           {"count", length},
                                                           {"d", default_value},
                                                           {"default", default_value},
                                                           {"dictsort", dictsort},
                                                           {"first", first},
                                                           {"float", to_float},
                                                           {"indent", indent},
                                                           {"int", to_int},
                                                           {"items", items},
                                                           {"join", join},
                                                           {"last", last},
                                                           {"length", length},
                                                           {"list", list},
                                                           {"lower", string_filter<kLower>},
                                                           {"map", map},
                                                           {"max", extreme<true>},
                                                           {"min", extreme<false>},
                                                           {"reject", select<false, false>},
                                                           {"rejectattr", select<false, true>},
                                                           {"replace", string_filter<kReplace>},
                                                           {"reverse", reverse},
                                                           {"round", round},
                                                           {"safe", safe},
                                                           {"select", select<true, false>},
                                                           {"selectattr", select<true, true>},
                                                           {"sort", sort},
                                                           {"string", string},
                                                           {"sum", sum},
                                                           {"title", title},
                                                           {"tojson", tojson},
                                                           {"trim", trim},
                                                           {"unique", unique},
                                                           {"upper", string_filter<kUpper>}};
  auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace sf::text
