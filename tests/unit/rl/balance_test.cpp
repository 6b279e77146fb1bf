// SPDX-License-Identifier: Apache-2.0
#include "rl/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"

namespace sf::rl {
namespace {

using Values = std::vector<int64_t>;
using Parts = std::vector<Part>;

TEST(Differencing, GivesTheReferencesPartsInItsOrder) {
  EXPECT_EQ(balanced_parts(Values{8, 7, 6, 5, 4}, 2, false), (Parts{{1, 3, 4}, {0, 2}}));
  EXPECT_EQ(balanced_parts(Values{8, 7, 6, 5, 4, 3}, 2, true), (Parts{{0, 3, 4}, {1, 2, 5}}));
  EXPECT_EQ(balanced_parts(Values{100, 1, 1, 1, 1, 1}, 3, false), (Parts{{0}, {1, 3, 4}, {2, 5}}));
  EXPECT_EQ(balanced_parts(Values{3, 3, 3}, 3, false), (Parts{{2}, {1}, {0}}));
  EXPECT_EQ(balanced_parts(Values{1, 2}, 2, false), (Parts{{1}, {0}}));
}

TEST(Differencing, OfSequencesGoesByTheirWork) {
  Values work;
  for (int64_t length : {4096, 100, 200, 4000, 50, 60, 70, 2000}) work.push_back(workload(length));
  EXPECT_EQ(balanced_parts(work, 2, true), (Parts{{3, 4, 6, 7}, {0, 1, 2, 5}}));
  EXPECT_EQ(balanced_parts(work, 2, false), (Parts{{3, 7}, {0, 1, 2, 4, 5, 6}}));
}

TEST(Differencing, RefusesMorePartsThanThereAreSequencesAndUnequalEqualParts) {
  EXPECT_THROW(balanced_parts(Values{1, 2}, 3, false), Error);
  EXPECT_THROW(balanced_parts(Values{1, 2, 3}, 2, true), Error);
}

Values drawn(uint64_t seed) {
  const Rng rng(seed, "test:lengths");
  Values lengths(1 + rng.below(40, 0));
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = 1 + static_cast<int64_t>(rng.below(100, i + 1));
  return lengths;
}

TEST(MicroBatches, HoldEverySequenceOnceAndNeverMoreThanTheBudget) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Values lengths = drawn(seed);
    const Budget budget{.tokens = 100 + static_cast<int64_t>(seed % 7) * 30, .padded = seed % 2 == 0};
    Values seen;
    for (const Part& part : micro_batches(lengths, budget)) {
      EXPECT_FALSE(part.empty());
      EXPECT_LE(cost_of(lengths, part, budget.padded), budget.tokens);
      seen.insert(seen.end(), part.begin(), part.end());
    }
    std::ranges::sort(seen);
    Values all(lengths.size());
    std::iota(all.begin(), all.end(), 0);
    ASSERT_EQ(seen, all);
  }
}

// ceil(226 / 76) = 3 parts of like work, the largest of 77 tokens.
TEST(MicroBatches, AreMoreThanTheBudgetsCountWhereAPartWouldNotFit) {
  const Values lengths{70, 70, 7, 70, 7, 2};
  const std::vector<Part> parts = micro_batches(lengths, {.tokens = 76});
  EXPECT_EQ(parts.size(), 4u);
}

TEST(MicroBatches, AreRestoredToTheOrderOfTheSequences) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Values lengths = drawn(seed);
    const std::vector<Part> parts = micro_batches(lengths, {.tokens = 150});
    Values by_part;
    for (const Part& part : parts)
      for (int64_t index : part) by_part.push_back(lengths[static_cast<size_t>(index)]);
    ASSERT_EQ(restored(parts, std::span<const int64_t>(by_part)), lengths);
  }
}

TEST(MicroBatches, RefuseASequenceThatFitsNowhere) {
  EXPECT_THROW(micro_batches(Values{5, 101}, {.tokens = 100}), Error);
}

TEST(MicroBatches, AreAsManyAsAreAskedForButNeverMoreThanSequences) {
  EXPECT_EQ(micro_batches(Values{1, 1, 1}, {.tokens = 100, .at_least = 2}).size(), 2u);
  EXPECT_EQ(micro_batches(Values{1, 1, 1}, {.tokens = 100, .at_least = 9}).size(), 3u);
  EXPECT_TRUE(micro_batches({}, {.tokens = 100}).empty());
}

}  // namespace
}  // namespace sf::rl
