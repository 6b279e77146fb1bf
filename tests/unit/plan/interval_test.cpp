// SPDX-License-Identifier: Apache-2.0
#include "plan/interval.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace sf::plan {
namespace {

TEST(Dim0, ChunksAreCeilRowsAndTheLastRanksMayBeShortOrEmpty) {
  Shape shape{5, 3};
  EXPECT_EQ(dim0_interval(shape, 0, 4), (Interval{0, 6}));
  EXPECT_EQ(dim0_interval(shape, 1, 4), (Interval{6, 12}));
  EXPECT_EQ(dim0_interval(shape, 2, 4), (Interval{12, 15}));
  EXPECT_TRUE(dim0_interval(shape, 3, 4).empty());
}

TEST(Dim0, AScalarIsOneRow) {
  EXPECT_EQ(dim0_interval({}, 0, 3), (Interval{0, 1}));
  EXPECT_TRUE(dim0_interval({}, 1, 3).empty());
  EXPECT_TRUE(dim0_interval({0, 4}, 0, 3).empty());
}

TEST(Layouts, CoverEveryElementOnceInRankOrder) {
  std::vector<Shape> group{{10, 3}, {7}, {1, 5}, {4, 2, 2}, {}, {0, 3}};
  for (Layout layout : {Layout::kDim0, Layout::kFlat}) {
    for (int world : {1, 2, 3, 4, 7, 128}) {
      auto held = intervals(layout, group, world);
      for (size_t p = 0; p < group.size(); ++p) {
        int64_t next = 0;
        for (const Interval& mine : held[p]) {
          if (mine.empty()) continue;
          EXPECT_EQ(mine.lo, next);
          next = mine.hi;
        }
        EXPECT_EQ(next, numel(group[p])) << p << " of " << world;
      }
    }
  }
}

TEST(Layouts, FlatCutsAcrossParameters) {
  auto held = intervals(Layout::kFlat, {{3}, {5}}, 2);
  EXPECT_EQ(held[0][0], (Interval{0, 3}));
  EXPECT_EQ(held[1][0], (Interval{0, 1}));
  EXPECT_TRUE(held[0][1].empty());
  EXPECT_EQ(held[1][1], (Interval{1, 5}));
}

TEST(Layouts, ReplicateGivesAllToAll) {
  EXPECT_EQ(intervals(Layout::kReplicate, {{3, 2}}, 2)[0][1], (Interval{0, 6}));
}

TEST(Turns, RankIsRemainderAndRoundIsQuotient) {
  EXPECT_EQ(turn_of(11, 4).rank, 3);
  EXPECT_EQ(turn_of(11, 4).round, 2);
  EXPECT_EQ(rounds(12, 4), 3);
  EXPECT_EQ(rounds(13, 4), 4);
  EXPECT_EQ(rounds(0, 4), 0);
  EXPECT_THROW(turn_of(-1, 2), Error);
}

TEST(Intersect, OfDisjointRangesIsEmpty) {
  EXPECT_EQ(intersect({0, 5}, {3, 9}), (Interval{3, 5}));
  EXPECT_TRUE(intersect({0, 3}, {5, 9}).empty());
}

}  // namespace
}  // namespace sf::plan
