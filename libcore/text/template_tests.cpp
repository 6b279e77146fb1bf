// SPDX-License-Identifier: Apache-2.0
#include <ctime>
#include <map>

#include "base/error.h"
#include "text/template_runtime.h"
#include "text/unicode.h"

namespace sf::text {
namespace {

// A test of the value alone.
template <auto kPredicate>
bool plain(Runtime& runtime, const Value& input, Args& args) {
  bind(runtime, "a test", args, {});
  return kPredicate(input);
}
constexpr auto kDefined = [](const Value& v) { return !v.is_undefined(); };
constexpr auto kUndefined = [](const Value& v) { return v.is_undefined(); };
constexpr auto kNone = [](const Value& v) { return v.is_none(); };
constexpr auto kBoolean = [](const Value& v) { return v.is_bool(); };
constexpr auto kTrue = [](const Value& v) { return v.is_bool() && v.truthy(); };
constexpr auto kFalse = [](const Value& v) { return v.is_bool() && !v.truthy(); };
constexpr auto kInteger = [](const Value& v) { return v.is_int(); };
constexpr auto kFloat = [](const Value& v) { return v.is_double(); };
constexpr auto kNumberTest = [](const Value& v) { return v.is_number(); };
constexpr auto kString = [](const Value& v) { return v.is_string(); };
constexpr auto kMapping = [](const Value& v) { return v.is_dict(); };
constexpr auto kCallable = [](const Value& v) { return v.is_function(); };
// Jinja asks for a length and for items; Undefined has both.
constexpr auto kSequence = [](const Value& v) {
  return v.is_string() || v.is_list() || v.is_dict() || v.is_undefined();
};
constexpr auto kIterable = [](const Value& v) {
  return v.is_string() || v.is_list() || v.is_dict() || v.is_undefined() || v.is_loop();
};

template <int kRemainder>
bool parity(Runtime& runtime, const Value& input, Args& args) {
  bind(runtime, "a test", args, {});
  return (want_int(runtime, "odd, even", input) % 2 != 0) == (kRemainder == 1);
}

bool divisible_by(Runtime& runtime, const Value& input, Args& args) {
  auto bound = bind(runtime, "divisibleby", args, {"num"}, 1);
  int64_t by = want_int(runtime, "divisibleby", *bound[0]);
  if (by == 0) runtime.wrong("division by zero");
  return by == -1 || want_int(runtime, "divisibleby", input) % by == 0;
}

template <const char* kOperator>
bool comparison(Runtime& runtime, const Value& input, Args& args) {
  auto bound = bind(runtime, kOperator, args, {"other"}, 1);
  return compare(runtime, kOperator, input, *bound[0]);
}
constexpr char kEq[] = "==", kNe[] = "!=", kLt[] = "<", kLe[] = "<=", kGt[] = ">", kGe[] = ">=", kIn[] = "in";

bool same_as(Runtime& runtime, const Value& input, Args& args) {
  auto bound = bind(runtime, "sameas", args, {"other"}, 1);
  if (!input.is_none() && !input.is_bool()) runtime.unsupported("'sameas' on anything but none, true and false");
  return std::string_view(input.type_name()) == bound[0]->type_name() && input.equals(*bound[0]);
}

template <bool kUpper>
bool letters(Runtime& runtime, const Value& input, Args& args) {
  bind(runtime, "a test", args, {});
  bool cased = false;
  for (char32_t c : to_code_points(print_value(runtime, input))) {
    char32_t wanted = kUpper ? to_upper(c) : to_lower(c), other = kUpper ? to_lower(c) : to_upper(c);
    if (c != wanted) return false;
    cased = cased || c != other;
  }
  return cased;
}

// ---- functions of the environment
Value range(Runtime& runtime, Args& args) {
  auto bound = bind(runtime, "range", args, {"start", "stop", "step"}, 1);
  int64_t start = bound[1] ? want_int(runtime, "range", *bound[0]) : 0;
  int64_t stop = want_int(runtime, "range", bound[1] ? *bound[1] : *bound[0]);
  int64_t step = bound[2] ? want_int(runtime, "range", *bound[2]) : 1;
  if (step == 0) runtime.wrong("range: step cannot be zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (items.size() >= 100'000) runtime.wrong("range: more than 100000 numbers");
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  runtime.charge(items.size());
  return Value::list(std::move(items));
}

DictValue members_of(Runtime& runtime, std::string_view what, Args& args) {
  DictValue members;
  if (args.positional.size() > 1) runtime.wrong(fmt::format("{} takes at most one mapping", what));
  if (!args.positional.empty()) {
    if (!args.positional[0].is_dict())
      runtime.unsupported(fmt::format("{} of a {}", what, args.positional[0].type_name()));
    members = *args.positional[0].as_dict();
  }
  for (auto& [name, value] : args.named) members.set(name, value);
  return members;
}

Value make_namespace(Runtime& runtime, Args& args) {
  auto space = std::make_shared<NamespaceValue>();
  space->members = members_of(runtime, "namespace", args);
  runtime.charge(16);
  runtime.namespaces.push_back(space);
  return space;
}

Value make_dict(Runtime& runtime, Args& args) {
  return Value::dict(members_of(runtime, "dict", args));
}

Value raise_exception(Runtime& runtime, Args& args) {
  auto bound = bind(runtime, "raise_exception", args, {"message"}, 1);
  fail(Exit::kData, "{}", print_value(runtime, *bound[0]));
}

Value strftime_now(Runtime& runtime, Args& args) {
  auto bound = bind(runtime, "strftime_now", args, {"format"}, 1);
  const std::string& format = want_string(runtime, "strftime_now", *bound[0]);
  for (size_t i = 0; i < format.size(); ++i)
    if (format[i] == '%' &&
        (i + 1 >= format.size() || std::string_view("aAbBdHIjmMpSyYeFT%").find(format[++i]) == std::string_view::npos))
      runtime.unsupported(fmt::format("strftime_now: '%{}'", i < format.size() ? format.substr(i, 1) : ""));
  std::tm time{};
  time.tm_year = runtime.now.year - 1900, time.tm_mon = runtime.now.month - 1, time.tm_mday = runtime.now.day;
  time.tm_hour = runtime.now.hour, time.tm_min = runtime.now.minute, time.tm_sec = runtime.now.second;
  timegm(&time);  // fills in the weekday and the day of the year
  if (format.size() > 1000) runtime.wrong("strftime_now: the format is too long");
  std::string out(format.size() * 16 + 64, '\0');
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &time));
  return out;
}

Value function(const char* name, Value (*call)(Runtime&, Args&)) {
  return Value::FunctionPtr(std::make_shared<FunctionValue>(FunctionValue{name, call}));
}

}  // namespace

Test find_test(std::string_view name) {
  static const std::map<std::string_view, Test> table = {
      {"==", comparison<kEq>},       {"!=", comparison<kNe>},          {"<", comparison<kLt>},
      {"<=", comparison<kLe>},       {">", comparison<kGt>},           {">=", comparison<kGe>},
      {"boolean", plain<kBoolean>},  {"callable", plain<kCallable>},   {"defined", plain<kDefined>},
      {"divisibleby", divisible_by}, {"eq", comparison<kEq>},          {"equalto", comparison<kEq>},
      {"even", parity<0>},           {"false", plain<kFalse>},         {"float", plain<kFloat>},
      {"ge", comparison<kGe>},       {"greaterthan", comparison<kGt>}, {"gt", comparison<kGt>},
      {"in", comparison<kIn>},       {"integer", plain<kInteger>},     {"iterable", plain<kIterable>},
      {"le", comparison<kLe>},       {"lessthan", comparison<kLt>},    {"lower", letters<false>},
      {"lt", comparison<kLt>},       {"mapping", plain<kMapping>},     {"ne", comparison<kNe>},
      {"none", plain<kNone>},        {"number", plain<kNumberTest>},   {"odd", parity<1>},
      {"sameas", same_as},           {"sequence", plain<kSequence>},   {"string", plain<kString>},
      {"true", plain<kTrue>},        {"undefined", plain<kUndefined>}, {"upper", letters<true>}};
  auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

const std::vector<std::pair<std::string, Value>>& global_functions() {
  static const std::vector<std::pair<std::string, Value>> list = {
      {"range", function("range", range)},
      {"namespace", function("namespace", make_namespace)},
      {"dict", function("dict", make_dict)},
      {"raise_exception", function("raise_exception", raise_exception)},
      {"strftime_now", function("strftime_now", strftime_now)}};
  return list;
}

}  // namespace sf::text
