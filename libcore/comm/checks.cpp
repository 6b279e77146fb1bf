// SPDX-License-Identifier: Apache-2.0
#include "comm/checks.h"

#include <numeric>

#include "base/error.h"

namespace sf::comm {

void check_part(const GatherPart& part, int rank, int world) {
  SF_ASSERT(part.sizes.size() == static_cast<size_t>(world));
  SF_ASSERT(part.mine.size() == part.sizes[static_cast<size_t>(rank)]);
  SF_ASSERT(part.into.size() == std::accumulate(part.sizes.begin(), part.sizes.end(), size_t{0}));
}

void check_fold(std::span<const float> gradient, bool present, std::span<const size_t> offsets,
                std::span<const float> acc, int rank, int world) {
  auto mine = static_cast<size_t>(rank);
  SF_ASSERT(offsets.size() == static_cast<size_t>(world) + 1 && offsets[0] == 0);
  for (size_t r = 0; r + 1 < offsets.size(); ++r) SF_ASSERT(offsets[r] <= offsets[r + 1]);
  SF_ASSERT(!present || gradient.size() == offsets.back());
  SF_ASSERT(acc.size() == offsets[mine + 1] - offsets[mine]);
}

void fold_into(std::span<float> acc, const float* __restrict from) {
  float* __restrict to = acc.data();
  for (size_t i = 0, n = acc.size(); i < n; ++i) to[i] += from[i];
}

}  // namespace sf::comm
