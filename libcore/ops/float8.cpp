// SPDX-License-Identifier: Apache-2.0
#include "ops/float8.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "sf_kernels/optimizer.h"

namespace sf::ops {

float to_e4m3(std::span<const float> from, std::span<uint8_t> to) {
  SF_ASSERT(from.size() == to.size());
  const float largest = kernels::largest(from.data(), from.size());
  const float scale = largest > 0 ? std::max(largest / 448.0f, std::numeric_limits<float>::min()) : 1.0f;
  kernels::to_e4m3(from.data(), to.data(), to.size(), 1.0f / scale);
  return scale;
}

}  // namespace sf::ops
