// SPDX-License-Identifier: Apache-2.0
// Methods of strings, lists, dicts and loops. Those that change a value do not exist: values are immutable.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "text/template_runtime.h"
#include "text/unicode.h"

namespace sf::text {
namespace {

using Text = std::u32string;
using Method = Value (*)(Runtime&, const Value& self, Args& args);

const std::string& self_text(const Value& self) {
  return self.as_string();
}

// Characters that strip removes: white space, or those of the argument.
struct Strippable {
  bool white = true;
  Text characters;
  bool operator()(char32_t c) const { return white ? python_space(c) : characters.find(c) != Text::npos; }
};

template <bool kLeft, bool kRight>
Value strip(Runtime& runtime, const Value& self, Args& args) {
  auto bound = bind(runtime, "strip", args, {"chars"});
  Strippable strippable;
  if (bound[0] && !bound[0]->is_none()) strippable = {false, to_code_points(want_string(runtime, "strip", *bound[0]))};
  Text text = to_code_points(self_text(self));
  runtime.charge_bytes(text.size());
  size_t start = 0, end = text.size();
  while (kLeft && start < end && strippable(text[start])) ++start;
  while (kRight && end > start && strippable(text[end - 1])) --end;
  return to_utf8(std::u32string_view(text).substr(start, end - start));
}

std::vector<Value> split_white(std::string_view text, int64_t limit, bool from_right) {
  Text all = to_code_points(text);
  std::vector<Value> parts;
  if (from_right) std::reverse(all.begin(), all.end());
  auto piece = [&](size_t start, size_t end) {
    Text part = all.substr(start, end - start);
    if (from_right) std::reverse(part.begin(), part.end());
    parts.emplace_back(to_utf8(part));
  };
  size_t at = 0;
  while (true) {
    while (at < all.size() && python_space(all[at])) ++at;
    if (at >= all.size()) break;
    if (limit >= 0 && static_cast<int64_t>(parts.size()) >= limit) {
      piece(at, all.size());
      break;
    }
    size_t start = at;
    while (at < all.size() && !python_space(all[at])) ++at;
    piece(start, at);
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Value> split_by(std::string_view text, std::string_view by, int64_t limit, bool from_right) {
  std::vector<Value> parts;
  if (from_right) {
    while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
      size_t found = text.rfind(by);
      if (found == text.npos) break;
      parts.emplace_back(text.substr(found + by.size()));
      text = text.substr(0, found);
    }
    parts.emplace_back(text);
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    size_t found = text.find(by);
    if (found == text.npos) break;
    parts.emplace_back(text.substr(0, found));
    text.remove_prefix(found + by.size());
  }
  parts.emplace_back(text);
  return parts;
}

template <bool kRight>
Value split(Runtime& runtime, const Value& self, Args& args) {
  auto bound = bind(runtime, "split", args, {"sep", "maxsplit"});
  int64_t limit = bound[1] ? want_int(runtime, "split: maxsplit", *bound[1]) : -1;
  runtime.charge_bytes(self_text(self).size());
  std::vector<Value> parts;
  if (bound[0] && !bound[0]->is_none()) {
    const std::string& by = want_string(runtime, "split", *bound[0]);
    if (by.empty()) runtime.wrong("split: empty separator");
    parts = split_by(self_text(self), by, limit, kRight);
  } else {
    parts = split_white(self_text(self), limit, kRight);
  }
  runtime.charge(parts.size());
  return Value::list(std::move(parts));
}

Value splitlines(Runtime& runtime, const Value& self, Args& args) {
  auto bound = bind(runtime, "splitlines", args, {"keepends"});
  bool keep = bound[0] && bound[0]->truthy();
  Text text = to_code_points(self_text(self));
  std::vector<Value> lines;
  auto line_end = [](char32_t c) {
    return (c >= 0xA && c <= 0xD) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
  };
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && !line_end(text[end])) ++end;
    size_t next =
        end < text.size() ? end + 1 + (text[end] == '\r' && end + 1 < text.size() && text[end + 1] == '\n') : end;
    lines.emplace_back(to_utf8(std::u32string_view(text).substr(at, (keep ? next : end) - at)));
    at = next;
  }
  runtime.charge(lines.size() + text.size() / 64);
  return Value::list(std::move(lines));
}

template <bool kEnd>
Value affix_test(Runtime& runtime, const Value& self, Args& args) {
  auto bound = bind(runtime, kEnd ? "endswith" : "startswith", args, {"affix"}, 1);
  auto has = [&](const Value& affix) {
    const std::string& text = want_string(runtime, kEnd ? "endswith" : "startswith", affix);
    return kEnd ? self_text(self).ends_with(text) : self_text(self).starts_with(text);
  };
  if (!bound[0]->is_list()) return has(*bound[0]);
  for (const Value& affix : bound[0]->items())
    if (has(affix)) return true;
  return false;
}

template <bool kEnd>
Value remove_affix(Runtime& runtime, const Value& self, Args& args) {
  auto bound = bind(runtime, kEnd ? "removesuffix" : "removeprefix", args, {"affix"}, 1);
  const std::string& affix = want_string(runtime, "removeprefix, removesuffix", *bound[0]);
  std::string_view text = self_text(self);
  if (kEnd && text.ends_with(affix)) text.remove_suffix(affix.size());
  if (!kEnd && text.starts_with(affix)) text.remove_prefix(affix.size());
  return text;
}

Value replace(Runtime& runtime, const Value& self, Args& args) {
  auto bound = bind(runtime, "replace", args, {"old", "new", "count"}, 2);
  const std::string& from = want_string(runtime, "replace", *bound[0]);
  const std::string& to = want_string(runtime, "replace", *bound[1]);
  int64_t limit = bound[2] && !bound[2]->is_none() ? want_int(runtime, "replace: count", *bound[2]) : -1;
  const std::string& text = self_text(self);
  std::string out;
  size_t at = 0;
  for (int64_t done = 0; limit < 0 || done < limit; ++done) {
    size_t found = from.empty() ? at : text.find(from, at);
    if (found == text.npos || found > text.size()) break;
    out.append(text, at, found - at);
    out += to;
    at = found + from.size();
    if (from.empty()) {
      if (at >= text.size()) {
        at = text.size();
        break;
      }
      size_t length = decode_utf8(text, at).length;
      out.append(text, at, length);
      at += length;
    }
    runtime.check_size(out.size());
  }
  out.append(text, at);
  runtime.charge_bytes(out.size());
  return out;
}

template <bool kUpper>
Value mapped(Runtime& runtime, const Value& self, Args& args) {
  bind(runtime, "upper, lower", args, {});
  Text text = to_code_points(self_text(self)), out;
  runtime.charge_bytes(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (kUpper)
      append_upper(out, text[i]);
    else
      append_lower(out, text, i);
  }
  return to_utf8(out);
}

Value capitalize(Runtime& runtime, const Value& self, Args& args) {
  bind(runtime, "capitalize", args, {});
  Text text = to_code_points(self_text(self)), out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i == 0)
      append_title(out, text[i]);
    else
      append_lower(out, text, i);
  }
  return to_utf8(out);
}

Value title(Runtime& runtime, const Value& self, Args& args) {
  bind(runtime, "title", args, {});
  Text text = to_code_points(self_text(self)), out;
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (inside)
      append_lower(out, text, i);
    else
      append_title(out, text[i]);
    inside = to_upper(text[i]) != text[i] || to_lower(text[i]) != text[i];
  }
  return to_utf8(out);
}

Value join(Runtime& runtime, const Value& self, Args& args) {
  auto bound = bind(runtime, "join", args, {"iterable"}, 1);
  std::string out;
  bool first = true;
  for (const Value& item : iterate(runtime, *bound[0])->items) {
    if (!first) out += self_text(self);
    first = false;
    out += want_string(runtime, "join", item);
    runtime.check_size(out.size());
  }
  runtime.charge_bytes(out.size());
  return out;
}

// Bytes to characters: `at` of a substring found, npos -> -1.
int64_t character_index(std::string_view text, size_t at) {
  return at == text.npos ? -1 : static_cast<int64_t>(count_code_points(text.substr(0, at)));
}

template <bool kRight, bool kMust>
Value find(Runtime& runtime, const Value& self, Args& args) {
  auto bound = bind(runtime, "find", args, {"sub", "start", "end"}, 1);
  const std::string& sub = want_string(runtime, "find", *bound[0]);
  Value part = bound[1] || bound[2]
                   ? slice(runtime, self, bound[1].value_or(Value()), bound[2].value_or(Value()), Value())
                   : self;
  runtime.charge_bytes(self_text(self).size());
  int64_t found = character_index(self_text(part), kRight ? self_text(part).rfind(sub) : self_text(part).find(sub));
  if (found < 0 && kMust) runtime.wrong("index: substring not found");
  if (found < 0 || !bound[1] || bound[1]->is_none()) return found;
  int64_t start = want_int(runtime, "find", *bound[1]), n = length_of(runtime, self);
  return found + (start < 0 ? std::max<int64_t>(start + n, 0) : start);
}

Value count(Runtime& runtime, const Value& self, Args& args) {
  auto bound = bind(runtime, "count", args, {"sub"}, 1);
  const std::string& sub = want_string(runtime, "count", *bound[0]);
  if (sub.empty()) return length_of(runtime, self) + 1;
  runtime.charge_bytes(self_text(self).size());
  int64_t n = 0;
  for (size_t at = 0; (at = self_text(self).find(sub, at)) != std::string::npos; at += sub.size()) ++n;
  return n;
}

template <uint8_t kClasses>
Value all_of_class(Runtime& runtime, const Value& self, Args& args) {
  bind(runtime, "a test of characters", args, {});
  Text text = to_code_points(self_text(self));
  auto belongs = [](char32_t c) {
    return kClasses == kSpace ? python_space(c) : (unicode_classes()[c] & kClasses) != 0;
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), belongs);
}

// ---- lists and dicts
Value list_count(Runtime& runtime, const Value& self, Args& args) {
  auto bound = bind(runtime, "count", args, {"value"}, 1);
  runtime.charge(self.items().size());
  return static_cast<int64_t>(std::count_if(self.items().begin(), self.items().end(),
                                            [&](const Value& item) { return item.equals(*bound[0]); }));
}
Value list_index(Runtime& runtime, const Value& self, Args& args) {
  auto bound = bind(runtime, "index", args, {"value"}, 1);
  runtime.charge(self.items().size());
  for (size_t i = 0; i < self.items().size(); ++i)
    if (self.items()[i].equals(*bound[0])) return static_cast<int64_t>(i);
  runtime.wrong("index: the list has no such item");
}

template <int kPart>  // 0: keys, 1: values, 2: pairs
Value dict_view(Runtime& runtime, const Value& self, Args& args) {
  bind(runtime, "keys, values, items", args, {});
  std::vector<Value> out;
  for (const auto& [key, value] : self.as_dict()->items)
    out.push_back(kPart == 0 ? Value(key) : kPart == 1 ? value : Value::list({Value(key), value}, true));
  runtime.charge(out.size());
  return Value::list(std::move(out));
}
Value dict_get(Runtime& runtime, const Value& self, Args& args) {
  auto bound = bind(runtime, "get", args, {"key", "default"}, 1);
  const Value* found = bound[0]->is_string() ? self.as_dict()->find(bound[0]->as_string()) : nullptr;
  return found ? *found : bound[1].value_or(Value());
}

// ---- loop
Value cycle(Runtime& runtime, const Value& self, Args& args) {
  if (args.positional.empty() || !args.named.empty()) runtime.wrong("cycle: no items were given");
  return args.positional[self.as_loop()->index % args.positional.size()];
}
Value changed(Runtime&, const Value& self, Args& args) {
  LoopValue& loop = *self.as_loop();
  bool same = loop.changed_known &&
              std::equal(loop.changed.begin(), loop.changed.end(), args.positional.begin(), args.positional.end(),
                         [](const Value& a, const Value& b) { return a.equals(b); });
  loop.changed = args.positional;
  loop.changed_known = true;
  return !same;
}

using Table = std::map<std::string_view, Method>;

const Table& string_methods() {
  static const Table table = {{"strip", strip<true, true>},
                              {"lstrip", strip<true, false>},
                              {"rstrip", strip<false, true>},
                              {"split", split<false>},
                              {"rsplit", split<true>},
                              {"splitlines", splitlines},
                              {"startswith", affix_test<false>},
                              {"endswith", affix_test<true>},
                              {"removeprefix", remove_affix<false>},
                              {"removesuffix", remove_affix<true>},
                              {"replace", replace},
                              {"upper", mapped<true>},
                              {"lower", mapped<false>},
                              {"capitalize", capitalize},
                              {"title", title},
                              {"join", join},
                              {"find", find<false, false>},
                              {"rfind", find<true, false>},
                              {"index", find<false, true>},
                              {"rindex", find<true, true>},
                              {"count", count},
                              {"isdigit", all_of_class<kNumber>},
                              {"isalpha", all_of_class<kLetter>},
                              {"isalnum", all_of_class<kLetter | kNumber>},
                              {"isspace", all_of_class<kSpace>}};
  return table;
}
const Table& list_methods() {
  static const Table table = {{"count", list_count}, {"index", list_index}};
  return table;
}
const Table& dict_methods() {
  static const Table table = {
      {"keys", dict_view<0>}, {"values", dict_view<1>}, {"items", dict_view<2>}, {"get", dict_get}};
  return table;
}
const Table& loop_methods() {
  static const Table table = {{"cycle", cycle}, {"changed", changed}};
  return table;
}

}  // namespace

std::optional<Value> method(const Value& object, const std::string& name) {
  const Table* table = object.is_string() ? &string_methods()
                       : object.is_list() ? &list_methods()
                       : object.is_dict() ? &dict_methods()
                       : object.is_loop() ? &loop_methods()
                                          : nullptr;
  if (!table) return std::nullopt;
  auto found = table->find(name);
  if (found == table->end()) return std::nullopt;
  auto function = std::make_shared<FunctionValue>();
  function->name = name;
  function->depth = object.depth() + 1;
  function->call = [call = found->second, object](Runtime& runtime, Args& args) { return call(runtime, object, args); };
  return Value(Value::FunctionPtr(std::move(function)));
}

}  // namespace sf::text
