// SPDX-License-Identifier: Apache-2.0
#include "score/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sf::score {
namespace {

TEST(PassAt, IsTheClosedForm) {
  EXPECT_DOUBLE_EQ(pass_at({16, 4}, 1), 0.25);
  EXPECT_NEAR(pass_at({16, 4}, 4), 0.728021978, 1e-9);
  EXPECT_NEAR(pass_at({16, 4}, 8), 0.961538462, 1e-9);
  EXPECT_NEAR(pass_at({16, 1}, 8), 0.5, 1e-12);
  EXPECT_NEAR(pass_at({64, 3}, 16), 0.584869432, 1e-9);
  EXPECT_DOUBLE_EQ(pass_at({16, 13}, 4), 1);
  EXPECT_DOUBLE_EQ(pass_at({8, 0}, 8), 0);
}

TEST(PassAt, OfOneIsTheMeanRate) {
  std::vector<Tally> tallies = {{16, 3}, {16, 0}, {16, 16}, {16, 7}};
  double sum = 0;
  for (const Tally& tally : tallies) sum += pass_at(tally, 1);
  EXPECT_NEAR(sum / 4, mean_rate(tallies), 1e-12);
}

// 24 of 60 is the double next to 0.4, whatever the order and sizes of the questions; sums of rounded shares fall below.
TEST(MeanRate, RoundsOnce) {
  EXPECT_EQ(mean_rate({{3, 1}, {3, 2}, {3, 3}, {3, 0}, {3, 0}}), 0.4);
  for (int64_t n = 1; n <= 12; ++n)
    for (int64_t questions : {5, 10, 20}) {
      std::vector<Tally> tallies;
      int64_t left = 2 * n * questions / 5;
      for (int64_t i = 0; i < questions; ++i) tallies.push_back({n, std::min(n, left)}), left -= tallies.back().c;
      EXPECT_EQ(mean_rate(tallies), static_cast<double>(2 * n * questions / 5) / static_cast<double>(n * questions));
    }
  EXPECT_EQ(mean_rate({{3, 1}, {7, 5}, {21, 20}}), 2.0 / 3);  // 1/3 + 5/7 + 20/21 = 2
  std::vector<Tally> primes;                                  // no common denominator in 64 bits
  for (int64_t n : {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71})
    primes.insert(primes.end(), {{n, 1}, {n, n - 1}});
  EXPECT_EQ(mean_rate(primes), 0.5);
}

// Recomputed from the answers: sample variance over n, summed over questions.
TEST(WithinError, IsTheUnbiasedVarianceOfAQuestionsAnswers) {
  const std::vector<Tally> mixed = {{4, 1}, {2, 1}, {3, 3}, {1, 1}};
  double sum = 0;
  for (const Tally& tally : mixed) {
    double squares = 0, rate = tally.rate();
    for (int64_t i = 0; i < tally.n; ++i) squares += std::pow((i < tally.c ? 1 : 0) - rate, 2);
    if (tally.n > 1) sum += squares / static_cast<double>(tally.n - 1) / static_cast<double>(tally.n);
  }
  EXPECT_NEAR(within_error(mixed), std::sqrt(sum) / 4, 1e-15);
}

// Percent of 30, rounded to one decimal.
TEST(Wilson, IntervalsOfThirtyAreTheKnownOnes) {
  const std::vector<std::array<double, 3>> kKnown = {
      {0, 0, 11.4},     {1, 0.6, 16.7},   {3, 3.5, 25.6},   {6, 9.5, 37.3},   {10, 19.2, 51.2}, {15, 33.2, 66.8},
      {20, 48.8, 80.8}, {24, 62.7, 90.5}, {27, 74.4, 96.5}, {29, 83.3, 99.4}, {30, 88.6, 100}};
  for (const auto& [correct, low, high] : kKnown) {
    Interval found = wilson(correct, 30);
    EXPECT_NEAR(100 * found.low, low, 0.0501) << correct;
    EXPECT_NEAR(100 * found.high, high, 0.0501) << correct;
  }
}

std::vector<Tally> of_thirty(int correct, int64_t n = 1) {
  std::vector<Tally> tallies;
  for (int i = 0; i < 30; ++i) tallies.push_back({n, i < correct ? n : 0});
  return tallies;
}

// The reference's curve: rewards of its CSV by step, the counts they stand for, and their intervals.
TEST(ReferenceCurve, RewardsAreCountsOfThirtyWithWilsonIntervals) {
  const std::vector<std::pair<double, int>> kRewards = {{-.2667, 11}, {-.1333, 13}, {-.0667, 14}, {.1333, 17}, {0, 15},
                                                        {.2, 18},     {.4667, 22},  {.4, 21},     {.5333, 23}};
  for (const auto& [reward, count] : kRewards) {
    EXPECT_EQ(std::lround(30 * accuracy_of_reward(reward)), count) << reward;
    EXPECT_NEAR(reward_of_accuracy(count / 30.0), reward, 5e-5);  // the CSV has four decimals
  }
  Interval first = mean_interval(of_thirty(11)), last = mean_interval(of_thirty(21)),
           peak = mean_interval(of_thirty(23));
  EXPECT_NEAR(100 * first.low, 21.9, 0.0501);
  EXPECT_NEAR(100 * first.high, 54.5, 0.0501);
  EXPECT_NEAR(100 * last.low, 52.1, 0.0501);
  EXPECT_NEAR(100 * last.high, 83.3, 0.0501);
  EXPECT_NEAR(100 * peak.low, 59.1, 0.0501);
  EXPECT_NEAR(100 * peak.high, 88.2, 0.0501);
}

TEST(Clusters, RepeatingEachAnswerDoesNotNarrowTheInterval) {
  Interval one = mean_interval(of_thirty(12)), copies = mean_interval(of_thirty(12, 64));
  EXPECT_NEAR(one.low, copies.low, 0.01);  // 30 questions each time; the sample variance divides by 29
  EXPECT_NEAR(one.high, copies.high, 0.01);
}

TEST(Clusters, AnswersThatDifferWithinQuestionsNarrowIt) {
  std::vector<Tally> even(30, Tally{16, 8});
  Interval narrow = mean_interval(even), wide = mean_interval(of_thirty(15));
  EXPECT_LT(narrow.high - narrow.low, 0.5 * (wide.high - wide.low));
  EXPECT_DOUBLE_EQ(clustered_error(even), 0);
  EXPECT_NEAR(within_error(even), std::sqrt(0.25 / 15 / 30), 1e-12);  // unbiased: n - 1
}

TEST(Majority, TiesShareAndAbstentionsDoNotVote) {
  EXPECT_DOUBLE_EQ(majority({{"42", true}, {"42", true}, {"7", false}}), 1);
  EXPECT_DOUBLE_EQ(majority({{"42", true}, {"7", false}}), 0.5);
  EXPECT_DOUBLE_EQ(majority({{"42", true}, {"7", false}, {"8", false}}), 1.0 / 3);
  EXPECT_DOUBLE_EQ(majority({{"", false}, {"", false}, {"42", true}}), 1);
  EXPECT_DOUBLE_EQ(majority({{"", false}}), 0);
}

TEST(Majority, OfFewerAnswersIsTheMeanOverSubsets) {
  std::vector<Vote> votes = {{"a", true}, {"b", false}, {"b", false}, {"c", false}};
  EXPECT_DOUBLE_EQ(majority_at(votes, 1, 0), 0.25);
  EXPECT_DOUBLE_EQ(majority_at(votes, 2, 0), 3 * 0.5 / 6);
  EXPECT_DOUBLE_EQ(majority_at(votes, 4, 0), 0);
  std::vector<Vote> many(40, Vote{"b", false});
  for (size_t i = 0; i < 24; ++i) many[i] = {"a", true};
  EXPECT_NEAR(majority_at(many, 1, 1), 0.6, 1e-12);
  EXPECT_NEAR(majority_at(many, 9, 1), 0.765, 0.015);  // hypergeometric, 10,000 draws: three standard errors
}

TEST(Paired, TheSignFlipTestCountsAllFlips) {
  std::vector<Tally> a = of_thirty(0), b = of_thirty(5);
  Paired five = paired_test(a, b, 1);
  EXPECT_TRUE(five.exact);
  EXPECT_DOUBLE_EQ(five.p, 2.0 / 32);
  EXPECT_EQ(five.up, 5);
  EXPECT_EQ(five.down, 0);
  EXPECT_EQ(five.equal, 25);
  EXPECT_NEAR(five.difference, 5.0 / 30, 1e-12);
  EXPECT_DOUBLE_EQ(paired_test(a, a, 1).p, 1);
}

TEST(Paired, ExchangingTheSidesTurnsTheSignAndKeepsP) {
  std::vector<Tally> a, b;
  for (int64_t i = 0; i < 30; ++i) a.push_back({32, (i * 7) % 33}), b.push_back({32, (i * 11 + 5) % 33});
  Paired one = paired_test(a, b, 3), other = paired_test(b, a, 3);
  EXPECT_DOUBLE_EQ(one.p, other.p);
  EXPECT_DOUBLE_EQ(one.difference, -other.difference);
  EXPECT_EQ(one.up, other.down);
  EXPECT_LE(one.interval.low, one.difference);
  EXPECT_GE(one.interval.high, one.difference);
}

TEST(Paired, ManyQuestionsAreSampledAndSaySo) {
  std::vector<Tally> a, b;
  for (int64_t i = 0; i < 6000; ++i) a.push_back({32, 16}), b.push_back({32, 16 + (i % 2 == 0 ? 4 : -4)});
  Paired test = paired_test(a, b, 1);
  EXPECT_FALSE(test.exact);
  EXPECT_GT(test.p, 0.9);
}

TEST(Gain, IsTheSumOfItsPartsAndOneOfThemWhereTheOtherStays) {
  const Reading before{.n = 200, .readable = 120, .correct = 30};
  const Gain form = gain_of(before, {.n = 200, .readable = 200, .correct = 50});  // a quarter of the readable, twice
  EXPECT_NEAR(form.format, 0.1, 1e-15);
  EXPECT_NEAR(form.correctness, 0, 1e-15);
  const Gain matter = gain_of(before, {.n = 200, .readable = 120, .correct = 60});
  EXPECT_NEAR(matter.format, 0, 1e-15);
  EXPECT_NEAR(matter.correctness, 0.15, 1e-15);
  const Gain both = gain_of(before, {.n = 100, .readable = 90, .correct = 81});
  EXPECT_NEAR(both.format + both.correctness, 0.81 - 0.15, 1e-15);
  const Gain out_of_nothing = gain_of({.n = 10, .readable = 0, .correct = 0}, {.n = 10, .readable = 10, .correct = 5});
  EXPECT_NEAR(out_of_nothing.format + out_of_nothing.correctness, 0.5, 1e-15);
}

TEST(Multiplicity, HolmAdjustsByTheNumberOfLooks) {
  std::vector<double> adjusted = holm({0.01, 0.04, 0.03});
  EXPECT_NEAR(adjusted[0], 0.03, 1e-12);
  EXPECT_NEAR(adjusted[1], 0.06, 1e-12);
  EXPECT_NEAR(adjusted[2], 0.06, 1e-12);
  EXPECT_NEAR(holm({0.9, 0.8})[1], 1, 1e-12);
  EXPECT_TRUE(holm({}).empty());
}

}  // namespace
}  // namespace sf::score
