// SPDX-License-Identifier: Apache-2.0
// However a mini-batch is cut, and whoever computes its parts: the same loss and the same gradient. Bound 1e-12: fp64
// sums in another order.
#include "rl/aggregate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"
#include "rl/balance.h"
#include "rl/policy_loss.h"

namespace sf::rl {
namespace {

constexpr double kBound = 1e-12;

struct MiniBatch {
  Ragged rows;
  std::vector<uint8_t> mask;
  std::vector<double> log_probs, old, advantages;
};

MiniBatch drawn(uint64_t seed, int64_t sequences) {
  const Rng rng(seed, "test:mini-batch");
  MiniBatch batch;
  for (int64_t s = 0; s < sequences; ++s) batch.rows.add(static_cast<int64_t>(rng.below(9, static_cast<uint64_t>(s))));
  for (uint64_t t = 0; t < static_cast<uint64_t>(batch.rows.tokens()); ++t) {
    batch.mask.push_back(rng.uniform(t, 1) < 0.8);
    batch.log_probs.push_back(-3 * rng.uniform(t, 2));
    batch.old.push_back(-3 * rng.uniform(t, 3));
    batch.advantages.push_back(2 * rng.uniform(t, 4) - 1);
  }
  return batch;
}

MiniBatch part_of(const MiniBatch& whole, const std::vector<int64_t>& sequences) {
  MiniBatch part;
  for (int64_t s : sequences) {
    part.rows.add(whole.rows.length(s));
    for (auto t = static_cast<size_t>(whole.rows.begin(s)); t < static_cast<size_t>(whole.rows.end(s)); ++t) {
      part.mask.push_back(whole.mask[t]);
      part.log_probs.push_back(whole.log_probs[t]);
      part.old.push_back(whole.old[t]);
      part.advantages.push_back(whole.advantages[t]);
    }
  }
  return part;
}

PolicyResult loss_of(const MiniBatch& batch, PolicyLoss kind, Aggregation mode, const Denominators& by) {
  const std::vector<double> shares = token_shares(batch.rows, batch.mask, mode, by);
  return policy_loss(kind, {.high = 0.28},
                     {batch.rows, batch.mask, batch.log_probs, batch.old, batch.advantages, shares});
}

// Parts of 1 to 4 sequences, dealt to ranks in turn, each rank's losses summed first.
void expect_equal_however_cut(const MiniBatch& whole, PolicyLoss kind, Aggregation mode, uint64_t seed) {
  const Denominators by = local_denominators(whole.rows, whole.mask);
  const PolicyResult wanted = loss_of(whole, kind, mode, by);
  const Rng rng(seed, "test:cut");
  for (int64_t ranks : {1, 2, 3, 5}) {
    std::vector<double> of_rank(static_cast<size_t>(ranks), 0);
    int64_t k = 0;
    for (int64_t s = 0; s < whole.rows.count(); ++k) {
      std::vector<int64_t> part(
          std::min<size_t>(1 + rng.below(4, static_cast<uint64_t>(k), static_cast<uint64_t>(ranks)),
                           static_cast<size_t>(whole.rows.count() - s)));
      std::iota(part.begin(), part.end(), s);
      const PolicyResult found = loss_of(part_of(whole, part), kind, mode, by);
      of_rank[static_cast<size_t>(k % ranks)] += found.loss;
      for (size_t t = 0; t < found.gradient.size(); ++t)
        ASSERT_NEAR(found.gradient[t], wanted.gradient[static_cast<size_t>(whole.rows.begin(s)) + t], kBound);
      s += std::ssize(part);
    }
    ASSERT_NEAR(std::accumulate(of_rank.begin(), of_rank.end(), 0.0), wanted.loss, kBound);
  }
}

TEST(Aggregation, IsTheSameHoweverAMiniBatchIsCutAndByHoweverManyRanks) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const MiniBatch whole = drawn(seed, 17);
    for (PolicyLoss kind : {PolicyLoss::kPpo, PolicyLoss::kGspo, PolicyLoss::kCispo, PolicyLoss::kGpg})
      for (Aggregation mode : {Aggregation::kTokenMean, Aggregation::kTokenSum, Aggregation::kSeqMeanTokenSum,
                               Aggregation::kSeqMeanTokenSumNorm, Aggregation::kSeqMeanTokenMean})
        expect_equal_however_cut(whole, kind, mode, seed);
  }
}

TEST(Aggregation, ByTheMicroBatchsOwnTokensDependsOnTheCut) {
  const MiniBatch whole = drawn(3, 12);
  double sum = 0;
  for (int64_t s = 0; s < 12; s += 6) {
    std::vector<int64_t> part(6);
    std::iota(part.begin(), part.end(), s);
    const MiniBatch half = part_of(whole, part);
    sum += loss_of(half, PolicyLoss::kPpo, Aggregation::kTokenMean, local_denominators(half.rows, half.mask)).loss / 2;
  }
  const Denominators by = local_denominators(whole.rows, whole.mask);
  EXPECT_GT(std::abs(sum - loss_of(whole, PolicyLoss::kPpo, Aggregation::kTokenMean, by).loss), 1e-4);
}

TEST(Aggregation, LeavesOutRowsWithoutATokenAndReadsNothingOutsideOfTheMask) {
  Ragged rows;
  rows.add(2), rows.add(2), rows.add(0);
  const std::vector<uint8_t> mask{1, 0, 0, 0};
  const Denominators by = local_denominators(rows, mask);
  EXPECT_EQ(by.tokens, 1);
  EXPECT_EQ(by.sequences, 1);
  const std::vector<double> values{3, NAN, INFINITY, NAN};
  EXPECT_EQ(weighted_sum(values, token_shares(rows, mask, Aggregation::kTokenMean, by)), 3);
  EXPECT_NEAR(masked_mean(values, mask), 3, 1e-7);
}

TEST(Aggregation, WithoutADenominatorIsRefused) {
  Ragged rows;
  rows.add(1);
  const std::vector<uint8_t> mask{1};
  EXPECT_THROW(token_shares(rows, mask, Aggregation::kTokenMean, {}), Error);
  EXPECT_THROW(token_shares(rows, mask, Aggregation::kSeqMeanTokenMean, {.tokens = 1}), Error);
}

}  // namespace
}  // namespace sf::rl
