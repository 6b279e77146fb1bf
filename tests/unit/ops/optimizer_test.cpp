// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/error.h"
#include "ops/optimizer_kernels.h"

namespace sf::ops {
namespace {

std::vector<float> wild(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> out(n);
  for (float& x : out) {
    do {
      x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    } while (!std::isfinite(x));
  }
  return out;
}

double exact(const std::vector<float>& values) {
  SquareSum sum;
  sum.add(values);
  return sum.to_double();
}

TEST(SquareSum, SmallCasesAreExact) {
  EXPECT_EQ(exact({}), 0);
  EXPECT_EQ(exact({0.0f, -0.0f}), 0);
  EXPECT_EQ(exact({3.0f, -4.0f}), 25);
  EXPECT_EQ(exact({1.0f, 0x1p-20f}), 1 + 0x1p-40);
  EXPECT_EQ(exact({1.0f, 0x1p-27f}), 1);    // 2^-54: below half an ulp of 1
  EXPECT_EQ(exact({0x1p-140f}), 0x1p-280);  // a subnormal
  const float most = std::numeric_limits<float>::max();
  EXPECT_EQ(exact({most}), static_cast<double>(most) * most);
  EXPECT_EQ(exact({most, most, most, most}), 4 * (static_cast<double>(most) * most));
}

TEST(SquareSum, RoundsOnceToNearestEven) {
  // 1 + 2^-53 is a tie and goes to even (1); anything more, however small, goes up.
  EXPECT_EQ(exact({1.0f, 0x1.6a09e6p-27f}), 1);      // a little below the tie
  std::vector<float> tie{1.0f, 0x1p-27f, 0x1p-27f};  // 1 + 2^-53 exactly
  EXPECT_EQ(exact(tie), 1);
  tie.push_back(0x1p-100f);
  EXPECT_EQ(exact(tie), 1 + 0x1p-52);
}

TEST(SquareSum, OrderAndPartitionDoNotMatter) {
  std::vector<float> values = wild(5000, 3);
  SquareSum whole;
  whole.add(values);
  std::shuffle(values.begin(), values.end(), std::mt19937(4));
  SquareSum parts;
  for (size_t i = 0; i < values.size();) {
    const size_t n = std::min<size_t>(values.size() - i, i % 97 + 1);
    SquareSum part;
    part.add(std::span(values).subspan(i, n));
    parts.add(part);
    i += n;
  }
  EXPECT_EQ(whole.limbs(), parts.limbs());
  EXPECT_EQ(whole.to_double(), parts.to_double());
}

TEST(SquareSum, LimbsOfRanksAddUp) {
  const std::vector<float> a = wild(300, 1), b = wild(200, 2);
  SquareSum one, two, both;
  one.add(a);
  two.add(b);
  both.add(a);
  both.add(b);
  auto limbs = one.limbs();
  for (size_t i = 0; i < limbs.size(); ++i) limbs[i] += two.limbs()[i];
  SquareSum reduced;
  reduced.set_limbs(limbs);
  EXPECT_EQ(reduced.to_double(), both.to_double());
  EXPECT_EQ(reduced.limbs(), both.limbs());
}

TEST(SquareSum, IsNearTheFp64SumOfOrdinaryValues) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal(0, 1e-3f);
  std::vector<float> values(200000);
  long double want = 0;
  for (float& x : values) x = normal(random), want += static_cast<long double>(x) * x;
  EXPECT_NEAR(exact(values) / static_cast<double>(want), 1, 1e-14);
}

TEST(SquareSum, NonFiniteValuesAreCountedAndLeftOut) {
  SquareSum sum;
  sum.add(std::vector<float>{2, NAN, INFINITY, 1});
  EXPECT_EQ(sum.bad(), 2u);
  EXPECT_EQ(sum.to_double(), 5);
}

TEST(AdamW, AnElementDoesNotDependOnWhereItsIntervalBegins) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> p(500), g(500), m(500), v(500);
  for (auto* x : {&p, &g, &m}) std::generate(x->begin(), x->end(), [&] { return normal(random); });
  for (float& x : v) x = std::abs(normal(random));
  auto whole = std::vector{p, m, v}, cut = whole;
  AdamWStep step;
  step.lr = 1e-2, step.weight_decay = 0.1, step.step = 4, step.scale = 0.25;
  adamw_step(whole[0], g, whole[1], whole[2], step);
  for (size_t begin = 0; begin < 500;) {
    const size_t n = std::min<size_t>(500 - begin, begin % 31 + 1);
    auto piece = [&](std::vector<float>& x) { return std::span(x).subspan(begin, n); };
    adamw_step(piece(cut[0]), piece(g), piece(cut[1]), piece(cut[2]), step);
    begin += n;
  }
  EXPECT_EQ(whole, cut);
}

TEST(AdamW, SpansOfUnequalSizesAreRefused) {
  std::vector<float> four(4), three(3);
  EXPECT_THROW(adamw_step(four, three, four, four, {}), Error);
  EXPECT_THROW(fold_add(four, three), Error);
}

TEST(NonFinite, TheFirstIsNamed) {
  std::vector<float> values(100, 1);
  EXPECT_FALSE(first_non_finite(values));
  values[70] = -INFINITY;
  values[90] = NAN;
  EXPECT_EQ(first_non_finite(values), 70u);
}

}  // namespace
}  // namespace sf::ops
