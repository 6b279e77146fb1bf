// SPDX-License-Identifier: Apache-2.0
#include "tensor/extents.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"

namespace sf::tensor {
namespace {

TEST(Extents, WhatIsGivenBackJoinsItsNeighbours) {
  Extents range(100);
  ASSERT_EQ(range.take(30)->at, 0u);
  ASSERT_EQ(range.take(30)->at, 30u);
  ASSERT_EQ(range.take(40)->at, 60u);
  EXPECT_FALSE(range.take(1));
  range.give(0, 30);
  range.give(60, 40);
  EXPECT_FALSE(range.take(60));
  range.give(30, 30);
  EXPECT_EQ(range.take(100)->at, 0u);
}

TEST(Extents, TheLowestThatFitsIsTakenBeforeNewGround) {
  Extents range(1000);
  for (size_t size : {50, 1, 20, 1, 30, 1}) range.take(size);
  range.give(0, 50);
  range.give(51, 20);
  range.give(72, 30);
  EXPECT_EQ(range.take(25)->at, 0u);
  EXPECT_EQ(range.take(26)->at, 72u);
  EXPECT_EQ(range.take(18)->at, 25u);
  EXPECT_EQ(range.reached(), 103u);
}

TEST(Extents, OnlyGroundThatWasNeverTakenIsFresh) {
  Extents range(1000);
  EXPECT_TRUE(range.take(100)->fresh);
  range.give(0, 100);
  EXPECT_FALSE(range.take(50)->fresh);
  EXPECT_FALSE(range.take(80)->fresh);  // begins with what is left of the first
  EXPECT_EQ(range.reached(), 130u);
  EXPECT_TRUE(range.take(10)->fresh);
}

TEST(Extents, NoTwoTakenExtentsOverlapWhateverTheOrder) {
  Rng rng(3, "extents");
  Extents range(4000);
  std::vector<char> taken(4000, 0);
  std::vector<std::pair<size_t, size_t>> held;
  size_t bytes = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    if (rng.below(2, i, 0) == 0 && !held.empty()) {
      size_t which = rng.below(held.size(), i, 1);
      auto [at, size] = held[which];
      std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(at), size, 0);
      range.give(at, size);
      bytes -= size;
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
      continue;
    }
    size_t size = 1 + rng.below(200, i, 2);
    std::optional<Extents::Extent> extent = range.take(size);
    if (!extent) continue;
    for (size_t b = extent->at; b < extent->at + size; ++b) ASSERT_EQ(taken[b]++, 0) << i;
    held.emplace_back(extent->at, size);
    bytes += size;
    ASSERT_LE(bytes, range.reached());
  }
  for (auto [at, size] : held) range.give(at, size);
  EXPECT_EQ(range.take(4000)->at, 0u);
}

}  // namespace
}  // namespace sf::tensor
