// SPDX-License-Identifier: Apache-2.0
#include "data/feed.h"

#include <vector>

namespace sf::data {

Batch Feed::get(std::span<const uint64_t> positions) {
  std::vector<stream::Sample> samples;
  samples.reserve(positions.size());
  for (uint64_t position : positions) samples.push_back(source_.get(position, Deadline::after(Seconds(deadline_s_))));
  return collate_(samples);
}

}  // namespace sf::data
