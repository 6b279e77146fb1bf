// SPDX-License-Identifier: Apache-2.0
// A set of questions cut into parts of almost equal size that several jobs work on; the parts follow one another, so
// results put behind each other are in the set's order.
#pragma once
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace sf::score {

struct Shard {
  int64_t index = 0, count = 1;  // index from 0
  friend bool operator==(const Shard&, const Shard&) = default;
};

// "2/8" is the third of eight; kUsage for anything else.
Shard parse_shard(std::string_view text);

// Questions [first, second) of `questions` that belong to a shard. All shards of a count cover every question once.
std::pair<size_t, size_t> range_of(const Shard& shard, size_t questions);

// kData naming what is missing, doubled or of another count, unless `shards` are 0/n, 1/n, ..., n-1/n in any order.
void require_complete(const std::vector<Shard>& shards);

}  // namespace sf::score
