// SPDX-License-Identifier: Apache-2.0
// The number of ranks as --ranks N gives it.
#pragma once
#include <string_view>

namespace sf::app {

// kUsage unless `text` is a whole number from 1 to `most`.
int ranks_from_text(std::string_view text, int most);

}  // namespace sf::app
