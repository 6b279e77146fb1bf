// SPDX-License-Identifier: Apache-2.0
#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace sf::train {
namespace {

TEST(Schedule, WarmUpRisesInEqualStepsToTheBaseRate) {
  Schedule schedule{Decay::kCosine, 0.4, 0.25, 16};
  EXPECT_DOUBLE_EQ(rate(schedule, 0), 0.1);
  EXPECT_DOUBLE_EQ(rate(schedule, 3), 0.4);
}

TEST(Schedule, TheTextbookCosineStartsAtTheBaseAndEndsAtZero) {
  Schedule schedule{Decay::kCosine, 0.4, 0.25, 16};
  EXPECT_DOUBLE_EQ(rate(schedule, 4), 0.4);
  EXPECT_DOUBLE_EQ(rate(schedule, 10), 0.2);
  EXPECT_EQ(rate(schedule, 16), 0);
  EXPECT_EQ(rate(schedule, 20), 0);
}

TEST(Schedule, TheReferenceFormPassesTheBaseOneUpdateLater) {
  Schedule schedule{Decay::kCosine, 1e-3, 0, 50, true};
  EXPECT_GT(rate(schedule, 0), 1e-3);
  EXPECT_DOUBLE_EQ(rate(schedule, 1), 1e-3);
}

TEST(Schedule, AConstantRateHoldsAfterItsWarmUp) {
  Schedule schedule{Decay::kConstant, 0.5, 0.1, 20};
  EXPECT_DOUBLE_EQ(rate(schedule, 0), 0.25);
  EXPECT_EQ(rate(schedule, 2), 0.5);
  EXPECT_EQ(rate(schedule, 1000), 0.5);
}

TEST(Schedule, SettingsOutOfRangeAreRefused) {
  EXPECT_THROW(check({Decay::kCosine, -1, 0, 10}), Error);
  EXPECT_THROW(check({Decay::kCosine, NAN, 0, 10}), Error);
  EXPECT_THROW(check({Decay::kCosine, 1e-4, 1.5, 10}), Error);
  EXPECT_THROW(check({Decay::kCosine, 1e-4, 0, 0}), Error);
  EXPECT_THROW(check({Decay::kConstant, 1e-4, 1, 10}), Error);
  EXPECT_THROW(decay_from_name("linear"), Error);
}

}  // namespace
}  // namespace sf::train
