// SPDX-License-Identifier: Apache-2.0
#include "stream/fields.h"

#include <fmt/format.h>

#include "base/error.h"

namespace sf::stream {
namespace {

template <typename Read>
decltype(auto) named(const Json& json, std::string_view key, const Read& read) {
  const Json& value = json.at(key);
  try {
    return read(value);
  } catch (Error& error) {
    error.add_context(fmt::format("field {}", key));
    throw;
  }
}

}  // namespace

std::string text_field(const Json& json, std::string_view key, size_t most) {
  return named(json, key, [&](const Json& value) {
    const std::string& text = value.as_string();
    SF_CHECK(text.size() <= most, Exit::kData, "{} bytes, at most {} allowed", text.size(), most);
    return text;
  });
}

int64_t whole_field(const Json& json, std::string_view key) {
  return named(json, key, [](const Json& value) { return value.as_int(); });
}

int64_t natural_field(const Json& json, std::string_view key) {
  return named(json, key, [](const Json& value) {
    SF_CHECK(value.as_int() >= 0, Exit::kData, "wanted 0 or more, found {}", value.as_int());
    return value.as_int();
  });
}

const Json::Array& list_field(const Json& json, std::string_view key, size_t most) {
  return named(json, key, [&](const Json& value) -> const Json::Array& {
    SF_CHECK(value.as_array().size() <= most, Exit::kData, "{} items, at most {} allowed", value.as_array().size(),
             most);
    return value.as_array();
  });
}

}  // namespace sf::stream
