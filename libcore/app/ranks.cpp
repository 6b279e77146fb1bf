// SPDX-License-Identifier: Apache-2.0
#include "app/ranks.h"

#include <charconv>

#include "base/error.h"

namespace sf::app {

int ranks_from_text(std::string_view text, int most) {
  int ranks = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  SF_CHECK(error == std::errc() && end == text.data() + text.size() && ranks >= 1 && ranks <= most, Exit::kUsage,
           "--ranks: wanted a whole number from 1 to {}, found '{}'", most, text);
  return ranks;
}

}  // namespace sf::app
