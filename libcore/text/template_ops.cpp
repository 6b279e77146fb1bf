// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "text/template_runtime.h"
#include "text/unicode.h"

namespace sf::text {
namespace {

[[noreturn]] void bad_operands(Runtime& runtime, std::string_view op, const Value& a, const Value& b) {
  for (const Value* side : {&a, &b})
    if (side->is_undefined()) runtime.wrong(side->why_undefined());
  runtime.wrong(fmt::format("'{}' does not work between {} and {}", op, a.type_name(), b.type_name()));
}

std::string joined(Runtime& runtime, std::string_view a, std::string_view b) {
  runtime.charge_bytes(a.size() + b.size());
  std::string out;
  out.reserve(a.size() + b.size());
  return out.append(a).append(b);
}

Value repeated(Runtime& runtime, const Value& value, int64_t times) {
  size_t count = times < 0 ? 0 : static_cast<size_t>(times);
  size_t size = value.is_string() ? value.as_string().size() : value.items().size();
  if (size > 0 && count > kMaxTemplateText / size) runtime.wrong("a repetition makes too large a value");
  if (value.is_string()) {
    runtime.charge_bytes(size * count);
    std::string out;
    for (size_t i = 0; i < count && size > 0; ++i) out += value.as_string();
    return out;
  }
  runtime.charge(4 * size * count);
  std::vector<Value> items;
  for (size_t i = 0; i < count && size > 0; ++i) items.insert(items.end(), value.items().begin(), value.items().end());
  return Value::list(std::move(items), value.as_list()->tuple);
}

int64_t floor_div(int64_t a, int64_t b) {
  int64_t quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

Value integer_power(Runtime& runtime, int64_t base, int64_t exponent) {
  if (exponent < 0) return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  int64_t result = 1;
  if (base == 0 || base == 1) return exponent == 0 ? int64_t{1} : base;
  if (base == -1) return exponent % 2 ? int64_t{-1} : int64_t{1};
  for (int64_t i = 0; i < exponent; ++i)
    if (__builtin_mul_overflow(result, base, &result)) runtime.wrong("an integer is too large");
  return result;
}

Value integers(Runtime& runtime, std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool over = false;
  if (op == "+")
    over = __builtin_add_overflow(a, b, &result);
  else if (op == "-")
    over = __builtin_sub_overflow(a, b, &result);
  else if (op == "*")
    over = __builtin_mul_overflow(a, b, &result);
  else if (op == "**")
    return integer_power(runtime, a, b);
  else {
    if (b == 0) runtime.wrong("division by zero");
    if (op == "/") return static_cast<double>(a) / static_cast<double>(b);
    over = a == INT64_MIN && b == -1;
    if (!over) result = op == "//" ? floor_div(a, b) : a - floor_div(a, b) * b;
  }
  if (over) runtime.wrong("an integer is too large");
  return result;
}

Value reals(Runtime& runtime, std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") return std::pow(a, b);
  if (b == 0) runtime.wrong("division by zero");
  if (op == "/") return a / b;
  double quotient = std::floor(a / b);
  return op == "//" ? quotient : a - quotient * b;
}

// Index of a sequence of `size` items, Python's way; -1 if out of range.
int64_t wrap_index(int64_t index, size_t size) {
  int64_t n = static_cast<int64_t>(size);
  if (index < 0) index += n;
  return index >= 0 && index < n ? index : -1;
}

Value loop_attribute(const LoopValue& loop, const std::string& name) {
  int64_t index = static_cast<int64_t>(loop.index), n = static_cast<int64_t>(loop.items->items.size());
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return n - index;
  if (name == "revindex0") return n - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index == n - 1;
  if (name == "length") return n;
  if (name == "depth") return int64_t{1};  // it grows in recursive loops only
  if (name == "depth0") return int64_t{0};
  if (name == "previtem")
    return index > 0 ? loop.items->items[loop.index - 1] : Value::undefined("there is no previous item");
  if (name == "nextitem")
    return index + 1 < n ? loop.items->items[loop.index + 1] : Value::undefined("there is no next item");
  return Value::undefined(fmt::format("'loop' has no attribute '{}'", name));
}

Value missing(const Value& object, std::string_view name) {
  return Value::undefined(fmt::format("'{} object' has no attribute '{}'", object.type_name(), name));
}

}  // namespace

std::string TemplateSource::place(size_t at) const {
  std::string_view before = std::string_view(text).substr(0, at);
  size_t line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  size_t start = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("{}:{}:{}", origin, line, 1 + count_code_points(before.substr(start)));
}

void Runtime::wrong(std::string_view what) const {
  fail(Exit::kData, "{}: {}", source.place(at), what);
}
void Runtime::unsupported(std::string_view what) const {
  fail(Exit::kConfig, "{}: {} is not supported", source.place(at), what);
}

void Runtime::charge(uint64_t amount) {
  steps += amount;
  if (steps > kMaxTemplateSteps) wrong(fmt::format("the template did not end within {} steps", kMaxTemplateSteps));
}

void Runtime::check_size(size_t size) const {
  if (size > kMaxTemplateText) wrong(fmt::format("a text grows beyond {} MiB", kMaxTemplateText >> 20));
}

void Runtime::charge_bytes(size_t size) {
  check_size(size);
  charge(size / 64);
}

std::vector<std::optional<Value>> bind(Runtime& runtime, std::string_view what, Args& args,
                                       std::initializer_list<std::string_view> names, size_t required) {
  std::vector<std::optional<Value>> bound(names.size());
  if (args.positional.size() > names.size())
    runtime.wrong(
        fmt::format("{} takes at most {} arguments, {} were given", what, names.size(), args.positional.size()));
  for (size_t i = 0; i < args.positional.size(); ++i) bound[i] = args.positional[i];
  for (auto& [name, value] : args.named) {
    auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) runtime.wrong(fmt::format("{} has no argument '{}'", what, name));
    size_t i = static_cast<size_t>(found - names.begin());
    if (bound[i]) runtime.wrong(fmt::format("{}: argument '{}' is given twice", what, name));
    bound[i] = value;
  }
  for (size_t i = 0; i < required; ++i)
    if (!bound[i]) runtime.wrong(fmt::format("{} lacks its argument '{}'", what, names.begin()[i]));
  return bound;
}

int64_t want_int(Runtime& runtime, std::string_view what, const Value& value) {
  if (value.is_undefined()) runtime.wrong(value.why_undefined());
  if (!value.is_int() && !value.is_bool())
    runtime.wrong(fmt::format("{}: wanted an integer, found {}", what, value.type_name()));
  return value.as_int();
}

const std::string& want_string(Runtime& runtime, std::string_view what, const Value& value) {
  if (value.is_undefined()) runtime.wrong(value.why_undefined());
  if (!value.is_string()) runtime.wrong(fmt::format("{}: wanted a string, found {}", what, value.type_name()));
  return value.as_string();
}

Value binary(Runtime& runtime, std::string_view op, const Value& a, const Value& b) {
  if (op == "~") return joined(runtime, print_value(runtime, a), print_value(runtime, b));
  if (a.is_number() && b.is_number())
    return a.is_double() || b.is_double() ? reals(runtime, op, a.as_double(), b.as_double())
                                          : integers(runtime, op, a.as_int(), b.as_int());
  if (op == "+" && a.is_string() && b.is_string()) return joined(runtime, a.as_string(), b.as_string());
  if (op == "+" && a.is_list() && b.is_list() && a.as_list()->tuple == b.as_list()->tuple) {
    std::vector<Value> items = a.items();
    runtime.charge(items.size() + b.items().size());
    items.insert(items.end(), b.items().begin(), b.items().end());
    return Value::list(std::move(items), a.as_list()->tuple);
  }
  if (op == "*" && (a.is_string() || a.is_list()) && (b.is_int() || b.is_bool()))
    return repeated(runtime, a, b.as_int());
  if (op == "*" && (b.is_string() || b.is_list()) && (a.is_int() || a.is_bool()))
    return repeated(runtime, b, a.as_int());
  if (op == "%" && a.is_string()) runtime.unsupported("string formatting by '%'");
  bad_operands(runtime, op, a, b);
}

bool less(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number())
    return a.is_double() || b.is_double() ? a.as_double() < b.as_double() : a.as_int() < b.as_int();
  if (a.is_string() && b.is_string()) return a.as_string() < b.as_string();  // UTF-8 order is code point order
  if (a.is_list() && b.is_list() && a.as_list()->tuple == b.as_list()->tuple) {
    size_t n = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < n; ++i)
      if (!a.items()[i].equals(b.items()[i])) return less(runtime, a.items()[i], b.items()[i]);
    return a.items().size() < b.items().size();
  }
  bad_operands(runtime, "<", a, b);
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_string()) return container.as_string().find(want_string(runtime, "'in'", item)) != std::string::npos;
  if (container.is_dict()) return item.is_string() && container.as_dict()->find(item.as_string());
  auto items = iterate(runtime, container);
  return std::any_of(items->items.begin(), items->items.end(), [&](const Value& other) { return other.equals(item); });
}

bool compare(Runtime& runtime, std::string_view op, const Value& a, const Value& b) {
  if (op == "==") return a.equals(b);
  if (op == "!=") return !a.equals(b);
  if (op == "in") return contains(runtime, b, a);
  if (op == "not in") return !contains(runtime, b, a);
  if (op == "<") return less(runtime, a, b);
  if (op == ">") return less(runtime, b, a);
  bool equal = a.equals(b);
  if (op == "<=") return less(runtime, a, b) || equal;
  return less(runtime, b, a) || equal;
}

Value negate(Runtime& runtime, const Value& value, bool minus) {
  if (value.is_undefined()) runtime.wrong(value.why_undefined());
  if (!value.is_number()) runtime.wrong(fmt::format("a sign does not work on {}", value.type_name()));
  if (value.is_double()) return minus ? -value.as_double() : value.as_double();
  if (minus && value.as_int() == INT64_MIN) runtime.wrong("an integer is too large");
  return minus ? -value.as_int() : value.as_int();
}

Value attribute(Runtime& runtime, const Value& object, const std::string& name) {
  if (object.is_undefined()) runtime.wrong(object.why_undefined());
  if (object.is_loop() && name != "cycle" && name != "changed") return loop_attribute(*object.as_loop(), name);
  if (auto bound = method(object, name)) return *bound;
  const DictValue* members = object.is_dict()        ? object.as_dict().get()
                             : object.is_namespace() ? &object.as_namespace()->members
                                                     : nullptr;
  if (const Value* found = members ? members->find(name) : nullptr) return *found;
  return missing(object, name);
}

Value subscript(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_undefined()) runtime.wrong(object.why_undefined());
  if (key.is_string()) {
    if (object.is_dict())
      if (const Value* found = object.as_dict()->find(key.as_string())) return *found;
    return attribute(runtime, object, key.as_string());
  }
  if (object.is_list() && (key.is_int() || key.is_bool())) {
    int64_t index = wrap_index(key.as_int(), object.items().size());
    if (index >= 0) return object.items()[static_cast<size_t>(index)];
  } else if (object.is_string() && (key.is_int() || key.is_bool())) {
    std::u32string text = to_code_points(object.as_string());
    runtime.charge(text.size() / 64);
    int64_t index = wrap_index(key.as_int(), text.size());
    if (index >= 0) return to_utf8(text.substr(static_cast<size_t>(index), 1));
  }
  return Value::undefined(fmt::format("{} object has no element {}", object.type_name(), repr_value(runtime, key)));
}

Value slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) runtime.wrong(object.why_undefined());
  if (!object.is_string() && !object.is_list()) runtime.wrong(fmt::format("{} cannot be sliced", object.type_name()));
  std::u32string text = object.is_string() ? to_code_points(object.as_string()) : std::u32string();
  int64_t n = static_cast<int64_t>(object.is_string() ? text.size() : object.items().size());
  int64_t by = step.is_none() ? 1 : want_int(runtime, "slice step", step);
  if (by == 0) runtime.wrong("slice step cannot be zero");
  auto bound = [&](const Value& value, int64_t otherwise) {
    if (value.is_none()) return otherwise;
    int64_t at = want_int(runtime, "slice bound", value);
    if (at < 0)
      at = at < -n ? -1 : at + n;
    else
      at = std::min(at, n);
    return by > 0 ? std::max<int64_t>(at, 0) : std::min(at, n - 1);
  };
  int64_t from = bound(start, by > 0 ? 0 : n - 1), to = bound(stop, by > 0 ? n : -1);
  runtime.charge(static_cast<uint64_t>(n) / 64 + 1);
  std::u32string cut;
  std::vector<Value> items;
  for (int64_t i = from; by > 0 ? i < to : i > to;) {
    if (object.is_string())
      cut += text[static_cast<size_t>(i)];
    else
      items.push_back(object.items()[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  if (object.is_string()) return to_utf8(cut);
  runtime.charge(items.size());
  return Value::list(std::move(items), object.as_list()->tuple);
}

std::shared_ptr<const ListValue> iterate(Runtime& runtime, const Value& value) {
  if (value.is_list()) return value.as_list();
  auto out = std::make_shared<ListValue>();
  if (value.is_undefined()) return out;
  if (value.is_dict()) {
    for (const auto& [key, member] : value.as_dict()->items) out->items.emplace_back(key);
  } else if (value.is_string()) {
    for (char32_t c : to_code_points(value.as_string())) out->items.emplace_back(to_utf8(std::u32string_view(&c, 1)));
  } else {
    runtime.wrong(fmt::format("{} object is not iterable", value.type_name()));
  }
  runtime.charge(out->items.size());
  return out;
}

int64_t length_of(Runtime& runtime, const Value& value) {
  if (value.is_string()) return static_cast<int64_t>(count_code_points(value.as_string()));
  if (value.is_list()) return static_cast<int64_t>(value.items().size());
  if (value.is_dict()) return static_cast<int64_t>(value.as_dict()->items.size());
  if (value.is_undefined()) return 0;
  runtime.wrong(fmt::format("{} object has no length", value.type_name()));
}

Value path_of(Runtime& runtime, const Value& object, const Value& path) {
  if (!path.is_string()) return subscript(runtime, object, path);
  Value at = object;
  std::string_view rest = path.as_string();
  while (true) {
    size_t dot = rest.find('.');
    std::string part(rest.substr(0, dot));
    bool digits = !part.empty() && part.size() < 18 &&
                  std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    at = subscript(runtime, at, digits ? Value(static_cast<int64_t>(std::stoll(part))) : Value(part));
    if (dot == rest.npos) return at;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace sf::text
