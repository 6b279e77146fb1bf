// SPDX-License-Identifier: Apache-2.0
#include "rl/positions.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "base/rng.h"

namespace sf::rl {
namespace {

using Ids = std::vector<int64_t>;

// Samples whose ids are all different.
std::vector<Ids> samples(int64_t planes, const Ids& lengths) {
  std::vector<Ids> result;
  int64_t next = 1;
  for (int64_t length : lengths) {
    result.emplace_back(static_cast<size_t>(planes * length));
    std::iota(result.back().begin(), result.back().end(), next);
    next += planes * length;
  }
  return result;
}

TEST(Positions, SelectedKeepTheirPlanesAndSamples) {
  const std::vector<Ids> given = samples(4, {2, 5, 5, 3});
  const Positions picked = selected(joined(4, given), Ids{1, 2});
  EXPECT_EQ(picked.planes, 4);
  EXPECT_EQ(picked.offsets, (Ids{0, 5, 10}));
  EXPECT_EQ(picked.values.size(), 40u);
  EXPECT_EQ(sample_of(picked, 0), given[1]);
  EXPECT_EQ(sample_of(picked, 1), given[2]);
}

TEST(Positions, OfTwoEqualSamplesStayTwo) {
  const std::vector<Ids> given = samples(4, {5, 5});
  Ids rows = given[0];
  rows.insert(rows.end(), given[1].begin(), given[1].end());
  const Positions found = adopted({.rows = 8, .width = 5, .offsets = {0, 4, 8}, .values = rows}, 4);
  EXPECT_EQ(found.offsets, (Ids{0, 5, 10}));
  EXPECT_EQ(found, joined(4, given));
}

TEST(Positions, OfPlanesWhoseLabelWasLostKeepTheirNumbers) {
  const Positions wanted = joined(4, samples(4, {2, 7}));
  EXPECT_EQ(adopted({.rows = 4, .width = 9, .offsets = {0, 2, 9}, .values = wanted.values}, 4), wanted);
}

// Two samples of 2 tokens in 4 planes: their offsets end at the number of rows, and yet the rows are planes.
TEST(Positions, AreNotTakenForSamplesBecauseTheirTokensAreAsManyAsThePlanes) {
  const Positions wanted = joined(4, samples(4, {2, 2}));
  EXPECT_EQ(adopted({.rows = 4, .width = 4, .offsets = {0, 2, 4}, .values = wanted.values}, 4), wanted);
}

TEST(Positions, ThatAreNeitherAreRefused) {
  EXPECT_THROW(adopted({.rows = 4, .width = 204, .offsets = {0, 4, 8}, .values = Ids(816)}, 4), Error);
  EXPECT_THROW(adopted({.rows = 4, .width = 3, .offsets = {0, 3}, .values = Ids(11)}, 4), Error);
  EXPECT_THROW(joined(3, std::vector<Ids>{Ids(10)}), Error);
  EXPECT_THROW(joined(3, std::vector<Ids>{}), Error);
}

// A micro-batch of one sample of 204 tokens: its offsets [0, 204] must not become the planes' [0, 4].
TEST(Positions, OfOneSampleCountTokensNotPlanes) {
  const Positions one = joined(4, samples(4, {204}));
  EXPECT_EQ(one.offsets, (Ids{0, 204}));
  EXPECT_EQ(adopted({.rows = 4, .width = 204, .offsets = {0, 204}, .values = one.values}, 4), one);
}

void expect_kept(int64_t planes, const Ids& lengths) {
  const std::vector<Ids> given = samples(planes, lengths);
  const Positions all = joined(planes, given);
  ASSERT_EQ(unpadded(padded(all), lengths), all);
  std::vector<Positions> split;
  for (int64_t b = 0; b < all.samples(); ++b) split.push_back(selected(all, std::span(&b, 1)));
  ASSERT_EQ(joined(split), all);
  for (int64_t b = 0; b < all.samples(); ++b) ASSERT_EQ(sample_of(all, b), given[static_cast<size_t>(b)]);
  Ids backwards(static_cast<size_t>(all.samples()));
  std::iota(backwards.rbegin(), backwards.rend(), 0);
  ASSERT_EQ(selected(selected(all, backwards), backwards), all);
  ASSERT_EQ(adopted({planes, all.tokens(), all.offsets, all.values}, planes), all);
}

TEST(Positions, SurviveEveryWayThereAndBack) {
  for (int64_t planes : {1, 3, 4}) {
    expect_kept(planes, {1});
    expect_kept(planes, {5, 5, 5});
    expect_kept(planes, {0, 3, 0});
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const Rng rng(seed, "test:positions");
      Ids lengths(1 + rng.below(6, 0));
      for (size_t b = 0; b < lengths.size(); ++b) lengths[b] = static_cast<int64_t>(rng.below(9, b + 1));
      expect_kept(planes, lengths);
    }
  }
}

TEST(Positions, CountedRunFromNothingInEveryPlane) {
  const Positions found = counted(3, Ids{2, 1});
  EXPECT_EQ(found.values, (Ids{0, 1, 0, 0, 1, 0, 0, 1, 0}));
}

}  // namespace
}  // namespace sf::rl
