// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace sf::rl {

// Of a response, in size: beyond it sums of squares lose the differences that are to be learned.
inline constexpr double kMostScore = 1e12;

}  // namespace sf::rl
