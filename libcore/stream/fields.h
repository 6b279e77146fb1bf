// SPDX-License-Identifier: Apache-2.0
// Members of JSON objects that came from outside. Each throws kData naming the member: missing, of another type, or
// beyond its bound.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace sf::stream {

std::string text_field(const Json& json, std::string_view key, size_t most);  // bytes
int64_t whole_field(const Json& json, std::string_view key);
int64_t natural_field(const Json& json, std::string_view key);  // 0 or more
const Json::Array& list_field(const Json& json, std::string_view key, size_t most);

}  // namespace sf::stream
