// SPDX-License-Identifier: Apache-2.0
// Private to this room.
#pragma once
#include <string_view>

#include "ops/packed_linear.h"

namespace sf::gen {

// kData if a row's log-sum-exp is not finite: then its best token means nothing. `whose`: "target" or "draft".
void check_scores(const ops::Top1& best, std::string_view whose);

}  // namespace sf::gen
