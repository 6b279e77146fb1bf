// SPDX-License-Identifier: Apache-2.0
#include "rl/advantage.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace sf::rl {
namespace {

using Groups = std::vector<std::string>;
using Scores = std::vector<double>;

std::vector<double> of(const Groups& groups, const Scores& scores, AdvantageOptions options = {}) {
  return advantages(groups, scores, options).of;
}

TEST(Advantage, IsTheScoreBesideTheGroupsMeanOverTheSampleDeviation) {
  std::vector<double> found = of({"a", "a", "a", "a"}, {1, 1, -1, -1});
  EXPECT_DOUBLE_EQ(found[0], 0.8660246537850883);
  EXPECT_DOUBLE_EQ(found[3], -0.8660246537850883);
  found = of(Groups(8, "a"), {1, -1, -1, -1, -1, -1, -1, -1});
  EXPECT_DOUBLE_EQ(found[0], 2.4748702341578657);
  EXPECT_DOUBLE_EQ(found[7], -0.3535528905939808);
  EXPECT_DOUBLE_EQ(of({"a", "a"}, {1, -1})[0], 0.7071062811869011);
}

TEST(Advantage, WithoutTheDeviationIsTheScoreBesideTheMean) {
  EXPECT_EQ(of({"a", "a"}, {1, -1}, {.estimator = Estimator::kDrGrpo}), (Scores{1, -1}));
}

TEST(Advantage, OfLeaveOneOutIsTheScoreBesideTheMeanOfTheOthers) {
  const std::vector<double> found = of({"a", "a", "a"}, {1, 0, 0}, {.estimator = Estimator::kRloo});
  EXPECT_DOUBLE_EQ(found[0], 1);
  EXPECT_DOUBLE_EQ(found[1], -0.5);
}

TEST(Advantage, OfEqualScoresIsNothingAndTheirGroupIsCounted) {
  // The mean of eleven times 0.1 is not 0.1: nothing may be left of the rounding.
  const Advantages found = advantages(Groups(11, "a"), Scores(11, 0.1), {});
  EXPECT_EQ(found.of, Scores(11, 0));
  EXPECT_EQ(found.zero_variance, 1);
}

TEST(Advantage, GoesByIdWhereverTheGroupsMembersStand) {
  EXPECT_EQ(of({"a", "b", "a", "b"}, {1, 5, -1, 5}, {.estimator = Estimator::kDrGrpo}), (Scores{1, 0, -1, 0}));
}

TEST(Advantage, OfAGroupOfOneIsRawOrZeroOrDropped) {
  EXPECT_DOUBLE_EQ(of({"a"}, {2})[0], 2 / (1 + 1e-6));
  EXPECT_EQ(of({"a"}, {2}, {.singleton = Singleton::kZero}), Scores{0});
  const Advantages found = advantages(Groups{"a", "b", "b"}, Scores{2, 1, 0}, {.singleton = Singleton::kDrop});
  EXPECT_EQ(found.kept, (std::vector<uint8_t>{0, 1, 1}));
  EXPECT_EQ(found.singletons, 1);
  EXPECT_EQ(found.groups, 2);
}

TEST(Advantage, OfAScoreThatIsNoNumberIsRefused) {
  EXPECT_THROW(of({"a", "a"}, {NAN, 1}), Error);
}

TEST(DynamicSampling, KeepsGroupsWithDifferentScores) {
  EXPECT_EQ(teaches(Groups{"a", "b", "a", "b"}, Scores{1, 0, 1, 1}), (std::vector<uint8_t>{0, 1, 0, 1}));
}

TEST(Overlong, CostsNothingUpToTheBufferAndTheWholeFactorAtTheEnd) {
  EXPECT_EQ(overlong_penalty(80, 100, 20, 1), 0);
  EXPECT_DOUBLE_EQ(overlong_penalty(90, 100, 20, 1), -0.5);
  EXPECT_DOUBLE_EQ(overlong_penalty(100, 100, 20, 2), -2);
}

}  // namespace
}  // namespace sf::rl
