// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace sf::tool {

// Elements that are NaN or infinite among little-endian elements of a floating type; 0 for any other type.
int64_t non_finite(std::span<const std::byte> bytes, Dtype type);

}  // namespace sf::tool
