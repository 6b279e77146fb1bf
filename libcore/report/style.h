// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string_view>

namespace sf::report {
std::string_view page_style();  // what a page needs besides chart_style()
}
