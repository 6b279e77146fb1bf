// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"
#include "base/utf8.h"

namespace sf {
namespace {

constexpr size_t kMaxDepth = 512;

// Builds Json values while nlohmann's parser reports events; keeps order, refuses duplicates and deep nesting.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Json result;
  std::string problem;
  size_t problem_byte = 0;

  bool null() override { return put(Json()); }
  bool boolean(bool value) override { return put(Json(value)); }
  bool number_integer(number_integer_t value) override { return put(Json(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) return put(Json(static_cast<double>(value)));
    return put(Json(static_cast<int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t&) override { return put(Json(value)); }
  bool string(string_t& value) override { return put(Json(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    if (!keys_.back().insert(value).second) {
      problem = fmt::format("key \"{}\" occurs twice", value);
      return false;
    }
    pending_.back() = std::move(value);
    return true;
  }
  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ...", or without a place.
    const std::string text = error.what();
    const size_t name = text.find("] "), head = text.find(": ");
    const size_t from = head != std::string::npos ? head + 2 : name != std::string::npos ? name + 2 : 0;
    problem = "not valid JSON: " + text.substr(from);
    problem_byte = byte;
    return false;
  }

 private:
  bool put(Json value) {
    if (stack_.empty()) {
      result = std::move(value);
    } else if (stack_.back().is_array()) {
      stack_.back().as_array().push_back(std::move(value));
    } else {
      stack_.back().as_object().emplace_back(std::move(pending_.back()), std::move(value));
    }
    return true;
  }
  bool open(Json container) {
    if (stack_.size() >= kMaxDepth) {
      problem = fmt::format("nested deeper than {} levels", kMaxDepth);
      return false;
    }
    stack_.push_back(std::move(container));
    keys_.emplace_back();
    pending_.emplace_back();
    return true;
  }
  bool close() {
    Json done = std::move(stack_.back());
    stack_.pop_back();
    keys_.pop_back();
    pending_.pop_back();
    return put(std::move(done));
  }

  std::vector<Json> stack_;
  std::vector<std::unordered_set<std::string>> keys_;
  std::vector<std::string> pending_;
};

void dump_string(const std::string& text, std::string& out) {
  out += '"';
  for (size_t at = 0; at < text.size(); ++at) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (c >= 0x80) {  // JSON is UTF-8: a byte that is not, of a path for example, becomes U+FFFD
      const size_t length = utf8_length(text, at);
      if (c == 0xC2 && length == 2 && static_cast<unsigned char>(text[at + 1]) < 0xA0) {  // commands to a terminal
        out += fmt::format("\\u{:04x}", static_cast<unsigned char>(text[++at]));
        continue;
      }
      out += length ? std::string_view(text).substr(at, length) : std::string_view("\xEF\xBF\xBD");
      at += length ? length - 1 : 0;
      continue;
    }
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (c < 0x20 || c == 0x7F)
          out += fmt::format("\\u{:04x}", c);
        else
          out += static_cast<char>(c);
    }
  }
  out += '"';
}

void newline(int indent, int depth, std::string& out) {
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<size_t>(indent * depth), ' ');
}

void dump_value(const Json& value, int indent, int depth, std::string& out) {
  if (value.is_null())
    out += "null";
  else if (value.is_bool())
    out += value.as_bool() ? "true" : "false";
  else if (value.is_int())
    out += std::to_string(value.as_int());
  else if (value.is_number())
    out += std::isfinite(value.as_double()) ? double_text(value.as_double()) : "null";
  else if (value.is_string())
    dump_string(value.as_string(), out);
  else if (value.is_array()) {
    out += '[';
    bool first = true;
    for (const Json& item : value.as_array()) {
      if (!first) out += ',';
      first = false;
      newline(indent, depth + 1, out);
      dump_value(item, indent, depth + 1, out);
    }
    if (!first) newline(indent, depth, out);
    out += ']';
  } else {
    out += '{';
    bool first = true;
    for (const auto& [key, item] : value.as_object()) {
      if (!first) out += ',';
      first = false;
      newline(indent, depth + 1, out);
      dump_string(key, out);
      out += indent < 0 ? ":" : ": ";
      dump_value(item, indent, depth + 1, out);
    }
    if (!first) newline(indent, depth, out);
    out += '}';
  }
}

[[noreturn]] void wrong_type(const char* wanted, const Json& found) {
  std::string shown = found.dump();
  if (shown.size() > 60) shown = shown.substr(0, 57) + "...";
  fail(Exit::kData, "wanted {}, found {} {}", wanted, found.type_name(), shown);
}

}  // namespace

std::string double_text(double value) {
  char buffer[40];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, end);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

Json Json::parse(std::string_view text, std::string_view origin) {
  Builder builder;
  bool ok = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (!ok) {
    size_t at = std::min(builder.problem_byte, text.size());
    std::string_view before = text.substr(0, at ? at - 1 : 0);
    size_t line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
    size_t start = before.rfind('\n');
    size_t column = before.size() - (start == std::string_view::npos ? 0 : start + 1) + 1;
    if (builder.problem_byte) fail(Exit::kData, "{}:{}:{}: {}", origin, line, column, builder.problem);
    fail(Exit::kData, "{}: {}", origin, builder.problem.empty() ? "not valid JSON" : builder.problem);
  }
  return std::move(builder.result);
}

std::string Json::dump(int indent) const {
  std::string out;
  dump_value(*this, indent, 0, out);
  return out;
}

const char* Json::type_name() const {
  static constexpr const char* kNames[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
  return kNames[value_.index()];
}

bool Json::as_bool() const {
  return is_bool() ? std::get<bool>(value_) : (wrong_type("a boolean", *this), false);
}
int64_t Json::as_int() const {
  if (!is_int()) wrong_type("an integer", *this);
  return std::get<int64_t>(value_);
}
double Json::as_double() const {
  if (is_int()) return static_cast<double>(std::get<int64_t>(value_));
  if (!is_number()) wrong_type("a number", *this);
  return std::get<double>(value_);
}
const std::string& Json::as_string() const {
  if (!is_string()) wrong_type("a string", *this);
  return std::get<std::string>(value_);
}
const Json::Array& Json::as_array() const {
  if (!is_array()) wrong_type("an array", *this);
  return std::get<Array>(value_);
}
const Json::Object& Json::as_object() const {
  if (!is_object()) wrong_type("an object", *this);
  return std::get<Object>(value_);
}
Json::Array& Json::as_array() {
  return const_cast<Array&>(std::as_const(*this).as_array());
}
Json::Object& Json::as_object() {
  return const_cast<Object&>(std::as_const(*this).as_object());
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const auto& [name, value] : as_object())
    if (name == key) return &value;
  return nullptr;
}

const Json& Json::at(std::string_view key) const {
  const Json* value = find(key);
  SF_CHECK(value, Exit::kData, "key \"{}\" is missing", key);
  return *value;
}

namespace {
template <typename Read>
auto get_or(const Json& object, std::string_view key, decltype(std::declval<Read>()(object)) otherwise, Read read) {
  const Json* value = object.find(key);
  if (!value || value->is_null()) return otherwise;
  try {
    return read(*value);
  } catch (Error& error) {
    error.add_context(fmt::format("key \"{}\"", key));
    throw;
  }
}
}  // namespace

int64_t Json::get_int(std::string_view key, int64_t otherwise) const {
  return get_or(*this, key, otherwise, [](const Json& v) { return v.as_int(); });
}
double Json::get_double(std::string_view key, double otherwise) const {
  return get_or(*this, key, otherwise, [](const Json& v) { return v.as_double(); });
}
bool Json::get_bool(std::string_view key, bool otherwise) const {
  return get_or(*this, key, otherwise, [](const Json& v) { return v.as_bool(); });
}
std::string Json::get_string(std::string_view key, std::string_view otherwise) const {
  return get_or(*this, key, std::string(otherwise), [](const Json& v) { return v.as_string(); });
}

Json& Json::set(std::string_view key, Json value) {
  if (is_null()) value_ = Object{};
  for (auto& [name, old] : as_object())
    if (name == key) {
      old = std::move(value);
      return *this;
    }
  as_object().emplace_back(key, std::move(value));
  return *this;
}

void Json::push(Json value) {
  if (is_null()) value_ = Array{};
  as_array().push_back(std::move(value));
}

}  // namespace sf
