// SPDX-License-Identifier: Apache-2.0
#include "score/shards.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "base/fault.h"

namespace sf::score {
namespace {

constexpr int64_t kMostShards = 1'000'000;

bool read_whole(std::string_view text, int64_t& value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

}  // namespace

Shard parse_shard(std::string_view text) {
  Shard shard;
  size_t slash = text.find('/');
  bool good = slash != std::string_view::npos && read_whole(text.substr(0, slash), shard.index) &&
              read_whole(text.substr(slash + 1), shard.count);
  SF_CHECK(good && shard.count >= 1 && shard.count <= kMostShards && shard.index >= 0 && shard.index < shard.count,
           Exit::kUsage, "shard {}: wanted I/N with I from 0 to N - 1", text);
  return shard;
}

std::pair<size_t, size_t> range_of(const Shard& shard, size_t questions) {
  auto cut = [&](int64_t index) {
    return static_cast<size_t>(static_cast<unsigned __int128>(index) * questions / static_cast<uint64_t>(shard.count));
  };
  return {cut(shard.index), cut(shard.index + 1)};
}

void require_complete(const std::vector<Shard>& shards) {
  SF_CHECK(!shards.empty(), Exit::kData, "there are no shards to merge");
  int64_t count = shards[0].count;
  std::vector<int64_t> seen(static_cast<size_t>(count), 0);
  for (const Shard& shard : shards) {
    SF_CHECK(shard.count == count, Exit::kData, "shards of {} and of {} do not belong together", count, shard.count);
    ++seen[static_cast<size_t>(shard.index)];
  }
  std::vector<int64_t> missing, doubled;
  for (int64_t i = 0; i < count; ++i) {
    if (seen[static_cast<size_t>(i)] == 0) missing.push_back(i);
    if (seen[static_cast<size_t>(i)] > 1) doubled.push_back(i);
  }
  if (fault("score.gaps")) return;
  SF_CHECK(missing.empty(), Exit::kData, "of {} shards these are missing: {}", count, fmt::join(missing, ", "));
  SF_CHECK(doubled.empty(), Exit::kData, "of {} shards these occur more than once: {}", count,
           fmt::join(doubled, ", "));
}

}  // namespace sf::score
