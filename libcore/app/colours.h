// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "app/command.h"

namespace sf::app {

// result() goes to a terminal that shows colours, or SF_COLOR=always.
bool result_has_colours(const Invocation& invocation);

}  // namespace sf::app
