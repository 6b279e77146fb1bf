// SPDX-License-Identifier: Apache-2.0
#include "plan/interval.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

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

TEST(Layouts, FlatCutsAcrossParameters) {
  auto splits = split(Layout::kFlat, {{3}, {5}}, {1, 2});
  EXPECT_EQ(splits[0].held, (std::vector<Interval>{{0, 3}, {}}));
  EXPECT_EQ(splits[1].held, (std::vector<Interval>{{0, 1}, {1, 5}}));
}

TEST(Layouts, ReplicateGivesAllToAllAndCutsWhatIsOwned) {
  Mesh mesh = mesh_of(Layout::kReplicate, 1, 2);
  Split split = plan::split(Layout::kReplicate, {{3, 2}}, mesh)[0];
  EXPECT_EQ(split.held, (std::vector<Interval>{{0, 6}, {0, 6}}));
  EXPECT_EQ(split.owned, (std::vector<Interval>{{0, 3}, {3, 6}}));
}

TEST(Meshes, RowsHoldAParameterTogetherAndColumnsHoldTheSame) {
  Mesh mesh = mesh_of(Layout::kDim0, 2, 6);
  EXPECT_EQ(mesh.shards, 3);
  EXPECT_EQ(mesh.row(4), (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(mesh.column(4), (std::vector<int>{1, 4}));
  EXPECT_THROW(mesh_of(Layout::kDim0, 4, 6), Error);
}

// The properties: any shapes (scalars, empty ones, fewer rows than ranks), any layout, any mesh.
struct Case {
  std::vector<Shape> group;
  Layout layout;
  Mesh mesh;
};

Case any_case() {
  Case any;
  auto extent = rc::gen::inRange<int64_t>(0, 9);
  auto shape = rc::gen::resize(3, rc::gen::container<Shape>(extent));
  any.group = *rc::gen::resize(5, rc::gen::nonEmpty(rc::gen::container<std::vector<Shape>>(shape)));
  any.layout = *rc::gen::element(Layout::kDim0, Layout::kFlat, Layout::kReplicate);
  any.mesh = {*rc::gen::inRange(1, 5), *rc::gen::inRange(1, 12)};
  if (any.layout == Layout::kReplicate) any.mesh.shards = 1;
  return any;
}

// Disjoint, complete: sorted by where they begin, the pieces lie back to back from 0 to the last element.
void tile(std::vector<Interval> pieces, int64_t elements) {
  std::erase_if(pieces, [](const Interval& piece) { return piece.empty(); });
  int64_t next = 0;
  for (int rank : in_order(pieces)) {
    RC_ASSERT(pieces[static_cast<size_t>(rank)].lo == next);
    next = pieces[static_cast<size_t>(rank)].hi;
  }
  RC_ASSERT(next == elements);
}

RC_GTEST_PROP(Properties, TheRanksOfAReplicaHoldEveryElementOnceInRankOrder, ()) {
  Case any = any_case();
  auto splits = split(any.layout, any.group, any.mesh);
  for (size_t p = 0; p < any.group.size(); ++p) {
    for (int replica = 0; replica < any.mesh.replicas; ++replica) {
      std::vector<Interval> row;
      for (int rank : any.mesh.row(replica * any.mesh.shards)) row.push_back(splits[p].held[static_cast<size_t>(rank)]);
      tile(row, numel(any.group[p]));
      std::erase_if(row, [](const Interval& piece) { return piece.empty(); });
      RC_ASSERT(std::is_sorted(row.begin(), row.end(), [](auto& a, auto& b) { return a.lo < b.lo; }));
    }
  }
}

RC_GTEST_PROP(Properties, OwnedPartsCoverEveryElementOnceAndLieInWhatIsHeld, ()) {
  Case any = any_case();
  auto splits = split(any.layout, any.group, any.mesh);
  for (size_t p = 0; p < any.group.size(); ++p) {
    tile(splits[p].owned, numel(any.group[p]));
    for (size_t rank = 0; rank < splits[p].owned.size(); ++rank) {
      const Interval &own = splits[p].owned[rank], &held = splits[p].held[rank];
      RC_ASSERT(own.empty() || (own.lo >= held.lo && own.hi <= held.hi));
    }
  }
}

// Resharding is intersection: what any other layout and world wrote covers every held interval exactly once.
RC_GTEST_PROP(Properties, IntervalsOfAnotherLayoutAndWorldTileEveryHeldInterval, ()) {
  Case from = any_case(), to = any_case();
  to.group = from.group;
  auto written = split(from.layout, from.group, from.mesh), wanted = split(to.layout, to.group, to.mesh);
  for (size_t p = 0; p < from.group.size(); ++p) {
    for (const Interval& held : wanted[p].held) {
      int64_t elements = 0;
      for (const Interval& piece : written[p].owned) elements += intersect(held, piece).size();
      RC_ASSERT(elements == held.size());
    }
  }
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
