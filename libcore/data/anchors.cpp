// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "base/fault.h"
#include "base/rng.h"
#include "data/collate.h"

namespace sf::data {
std::vector<int64_t> draw_anchors(std::span<const uint8_t> mask, int64_t count, uint64_t seed, uint64_t position) {
  std::vector<int64_t> valid;
  for (size_t p = 0; p + 1 < mask.size(); ++p)
    if (mask[p] && mask[p + 1]) valid.push_back(static_cast<int64_t>(p));
  if (std::ssize(valid) <= count) return valid;
  if (fault("data.one_draw")) position = 0;
  Permutation order(seed, "anchors of position " + std::to_string(position), valid.size());
  std::vector<int64_t> drawn;
  for (int64_t i = 0; i < count; ++i) drawn.push_back(valid[order(static_cast<uint64_t>(i))]);
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

}  // namespace sf::data
