// SPDX-License-Identifier: Apache-2.0
#include "score/shards.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace sf::score {
namespace {

std::string refusal(const std::vector<Shard>& shards) {
  try {
    require_complete(shards);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Shards, CoverEveryQuestionOnceInOrder) {
  for (size_t questions : {0u, 1u, 7u, 30u, 1000u})
    for (int64_t count : {1, 2, 3, 8, 64}) {
      size_t at = 0;
      for (int64_t i = 0; i < count; ++i) {
        auto [begin, end] = range_of({i, count}, questions);
        EXPECT_EQ(begin, at);
        EXPECT_LE(end - begin, questions / static_cast<size_t>(count) + 1);
        at = end;
      }
      EXPECT_EQ(at, questions);
    }
}

TEST(Shards, AreWrittenAsIndexFromZeroOfCount) {
  EXPECT_EQ(parse_shard("2/8"), (Shard{2, 8}));
  for (const char* bad : {"8/8", "-1/8", "2", "2/", "/8", "2/0", "a/b", "2/8/3", "1/9999999999"})
    EXPECT_THROW(parse_shard(bad), Error) << bad;
}

TEST(Shards, GapsAndOverlapsAreRefusedByName) {
  EXPECT_EQ(refusal({{1, 3}, {0, 3}, {2, 3}}), "");
  EXPECT_EQ(refusal({{0, 4}, {3, 4}}), "of 4 shards these are missing: 1, 2");
  EXPECT_EQ(refusal({{0, 2}, {1, 2}, {1, 2}}), "of 2 shards these occur more than once: 1");
  EXPECT_EQ(refusal({{0, 2}, {1, 3}}), "shards of 2 and of 3 do not belong together");
}

}  // namespace
}  // namespace sf::score
