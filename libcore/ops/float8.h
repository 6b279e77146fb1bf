// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

namespace sf::ops {

// Values as float8_e4m3fn times the scale that is returned, largest / 448 (1 where all are 0): value = element * scale.
// An element of at least 2^-6 is off by at most 1/16 of itself, a smaller one by at most 2^-10. Finite values.
float to_e4m3(std::span<const float> from, std::span<uint8_t> to);

}  // namespace sf::ops
