// SPDX-License-Identifier: Apache-2.0
// Settings in messages and records: which key is refused, where a value was given, and whether one says anything new.
#pragma once
#include <string>
#include <string_view>

#include "base/error.h"
#include "config/settings.h"

namespace sf::config {

// What `body` makes of the value of `key`; its refusal (kConfig) names the key.
template <typename Body>
auto judged(std::string_view key, Body&& body) {
  try {
    return body();
  } catch (Error& error) {
    if (error.code() == Exit::kConfig && std::string_view(error.what()).find(key) == std::string_view::npos)
      error.add_context(key);
    throw;
  }
}

// Where the first key that `text` names was given; empty if it names none, or says itself where.
std::string origin_of_named(const Settings& settings, std::string_view text);
// Read by this verb and of another value than its default, however that was written.
bool is_changed(const Settings& settings, const Key& key);

}  // namespace sf::config
