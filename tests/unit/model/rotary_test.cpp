// SPDX-License-Identifier: Apache-2.0
#include "model/rotary.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace sf::model {
namespace {

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.equal(b);
}

TEST(Rotary, EntriesAreTheRoundedFp64Values) {
  Rotary rotary({.theta = 10000}, 8, 64);
  ops::RotaryTable table = rotary.table(40);
  ASSERT_GE(table.length(), 40);
  for (int p : {0, 1, 39})
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(table.cos[p][i].item<float>(), static_cast<float>(std::cos(p * std::pow(10000.0, -2.0 * i / 8))));
}

TEST(Rotary, GrowingKeepsTheRowsItHad) {
  Rotary rotary({.type = "linear", .theta = 10000, .factor = 2}, 8, 64);
  ops::RotaryTable before = rotary.table(10), after = rotary.table(5000);
  ASSERT_GE(after.length(), 5000);
  EXPECT_TRUE(same(before.sin, after.sin.narrow(0, 0, before.length())));
}

TEST(Rotary, DynamicScalingDependsOnTheLengthBeyondMaxPositionsOnly) {
  Rotary rotary({.type = "dynamic", .theta = 10000, .factor = 2}, 8, 64);
  EXPECT_TRUE(same(rotary.table(10).cos.narrow(0, 0, 10), rotary.table(64).cos.narrow(0, 0, 10)));
  EXPECT_FALSE(same(rotary.table(65).cos.narrow(0, 0, 64), rotary.table(64).cos.narrow(0, 0, 64)));
  EXPECT_FALSE(same(rotary.table(65).cos.narrow(0, 0, 65), rotary.table(100).cos.narrow(0, 0, 65)));
}

TEST(Rotary, ATableForPositionsReachesTheLargest) {
  Rotary rotary({.theta = 10000}, 8, 64);
  EXPECT_GE(rotary.turns_for(at::full({2, 2}, 3000, at::kLong)).table.length(), 3001);
}

TEST(Rotary, OddDimensionsAreRefused) {
  EXPECT_THROW(Rotary({}, 7, 64), Error);
}

}  // namespace
}  // namespace sf::model
