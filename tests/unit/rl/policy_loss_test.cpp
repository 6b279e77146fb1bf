// SPDX-License-Identifier: Apache-2.0
#include "rl/policy_loss.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "base/error.h"
#include "base/rng.h"
#include "rl/kl.h"

namespace sf::rl {
namespace {

PolicyResult one(double advantage, double ratio, const Clip& clip = {.high = 0.28}) {
  Ragged rows;
  rows.add(1);
  const std::array<uint8_t, 1> mask{1};
  const std::array<double, 1> now{std::log(ratio) - 1}, old{-1}, a{advantage}, share{1};
  return policy_loss(PolicyLoss::kPpo, clip, {rows, mask, now, old, a, share});
}

TEST(PolicyLoss, IsClippedHigherThanLowerAndBelowWhenThingsGoWrong) {
  EXPECT_NEAR(one(1, 1.5).loss, -1.28, 1e-12);
  EXPECT_EQ(one(1, 1.5).gradient[0], 0);
  EXPECT_NEAR(one(1, 0.5).loss, -0.5, 1e-12);
  EXPECT_NEAR(one(-1, 0.5).loss, 0.8, 1e-12);
  EXPECT_EQ(one(-1, 0.5).clipped, 1);
  EXPECT_NEAR(one(-1, 1.5).loss, 1.5, 1e-12);
  EXPECT_NEAR(one(-1, 4).loss, 3, 1e-12);
  EXPECT_EQ(one(-1, 4).gradient[0], 0);
  EXPECT_EQ(one(-1, 4).clipped_lower, 1);
}

TEST(PolicyLoss, OfTheOldPolicyItselfHasTheAdvantagesGradient) {
  EXPECT_DOUBLE_EQ(one(0.7, 1).gradient[0], -0.7);
  EXPECT_NEAR(one(0.7, 1).kl, 0, 1e-15);
}

TEST(PolicyLoss, RefusesBoundsThatAreNone) {
  EXPECT_THROW(check(Clip{.dual = 1}), Error);
  EXPECT_THROW(check(Clip{.low = 1}), Error);
  EXPECT_NO_THROW(check(Clip{}));
}

struct Drawn {
  Ragged rows;
  std::vector<uint8_t> mask;
  std::vector<double> now, old, advantages, shares, weights;
  PolicyTokens tokens(const std::vector<double>& log_probs) const {
    return {rows, mask, log_probs, old, advantages, shares, weights};
  }
};

Drawn drawn() {
  const Rng rng(7, "test:loss");
  Drawn d;
  for (int64_t length : {5, 1, 8}) d.rows.add(length);
  for (uint64_t t = 0; t < 14; ++t) {
    d.mask.push_back(t % 6 != 1);
    d.now.push_back(-2 * rng.uniform(t, 0));
    d.old.push_back(-2 * rng.uniform(t, 1));
    d.shares.push_back(d.mask.back() ? 0.1 + rng.uniform(t, 2) : 0);
    d.weights.push_back(rng.uniform(t, 3));
    d.advantages.push_back(t < 5 ? 0.8 : -0.6);
  }
  return d;
}

// Of cispo the clipped ratio counts as a constant, of gspo every ratio but the token's own: so are they differentiated
// here.
TEST(PolicyLoss, HasTheGradientThatDifferencesShow) {
  const Drawn d = drawn();
  constexpr double kStep = 1e-6;
  for (PolicyLoss kind : {PolicyLoss::kPpo, PolicyLoss::kGpg}) {
    const PolicyResult found = policy_loss(kind, {}, d.tokens(d.now));
    for (size_t t = 0; t < d.mask.size(); ++t) {
      if (!d.mask[t]) continue;
      std::vector<double> up = d.now, down = d.now;
      up[t] += kStep, down[t] -= kStep;
      const double slope =
          (policy_loss(kind, {}, d.tokens(up)).loss - policy_loss(kind, {}, d.tokens(down)).loss) / (2 * kStep);
      EXPECT_NEAR(found.gradient[t], slope, 1e-8) << t;
    }
  }
}

// With equal shares in a sequence, its ratio's gradient by any of its tokens is that of the mean: what one token's own
// log-probability moves, times the ratio, adds up to it.
TEST(PolicyLoss, OfSequencesHasTheGradientOfTheirMeanRatio) {
  Ragged rows;
  rows.add(3);
  const std::vector<uint8_t> mask{1, 1, 1};
  const std::vector<double> now{-1, -1.1, -0.9}, old{-1, -1, -1}, a(3, 0.5), shares(3, 1.0 / 3);
  const PolicyResult found = policy_loss(PolicyLoss::kGspo, {}, {rows, mask, now, old, a, shares});
  constexpr double kStep = 1e-6;
  for (size_t t = 0; t < 3; ++t) {
    std::vector<double> up = now;
    up[t] += kStep;
    const double slope =
        (policy_loss(PolicyLoss::kGspo, {}, {rows, mask, up, old, a, shares}).loss - found.loss) / kStep;
    EXPECT_NEAR(found.gradient[t], slope, 1e-6);
  }
}

TEST(PolicyLoss, ReadsNothingWhereThereIsNoToken) {
  Drawn d = drawn();
  const double wanted = policy_loss(PolicyLoss::kGspo, {}, d.tokens(d.now)).loss;
  for (size_t t = 0; t < d.mask.size(); ++t)
    if (!d.mask[t]) d.now[t] = NAN, d.old[t] = INFINITY, d.advantages[t] = NAN;
  EXPECT_EQ(policy_loss(PolicyLoss::kGspo, {}, d.tokens(d.now)).loss, wanted);
}

TEST(Kl, HasTheGradientThatDifferencesShowAndStraightThroughThatOfK2) {
  constexpr double kStep = 1e-6;
  for (const char* name : {"k1", "abs", "k2", "k3"}) {
    const Kl kl = kl_from_name(name);
    const double slope = (kl_of(kl, -1 + kStep, -1.7).value - kl_of(kl, -1 - kStep, -1.7).value) / (2 * kStep);
    EXPECT_NEAR(kl_of(kl, -1, -1.7).gradient, slope, 1e-8) << name;
  }
  const KlToken through = kl_of(kl_from_name("k3+"), -1, -1.7);
  EXPECT_EQ(through.value, kl_of(kl_from_name("k3"), -1, -1.7).value);
  EXPECT_EQ(through.gradient, kl_of(kl_from_name("k2"), -1, -1.7).gradient);
  EXPECT_THROW(kl_from_name("k4"), Error);
}

TEST(Kl, OfTheRewardCountsOnTheMaskAlone) {
  const std::vector<double> rewards{0, 1}, kl{NAN, 2};
  EXPECT_EQ(with_kl(rewards, kl, std::vector<uint8_t>{0, 1}, 0.1), (std::vector<double>{0, 0.8}));
}

TEST(Entropy, OfEqualLogitsIsTheLogOfTheirNumber) {
  EXPECT_NEAR(entropy(std::vector<float>(40, 3.F)), std::log(40), 1e-12);
}

}  // namespace
}  // namespace sf::rl
