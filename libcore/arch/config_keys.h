// SPDX-License-Identifier: Apache-2.0
// What config.json of a target or a draft may say that is read here: for shapes that are typed, where a word that
// nothing reads is a slip.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"

namespace sf::arch {

// Of all families, objects inside of others included.
std::span<const std::string_view> config_keys();
// The first key of `config`, or of an object in it, that is none of these.
std::optional<std::string> unread_key(const Json& config);

}  // namespace sf::arch
