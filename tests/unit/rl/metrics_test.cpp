// SPDX-License-Identifier: Apache-2.0
#include "rl/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "rl/correction.h"

namespace sf::rl {
namespace {

double value_of(const Metrics& metrics, const std::string& name) {
  auto found = std::ranges::find(metrics, name, &Metric::name);
  return found == metrics.end() ? NAN : found->value;
}

TEST(Mismatch, OfOneTokenIsThatOfTheReference) {
  Ragged rows;
  rows.add(1);
  const std::vector<uint8_t> mask{1};
  const std::vector<double> old{std::log(.5)}, rollout{std::log(.4)};
  const Metrics found = mismatch({rows, mask, old, rollout});
  EXPECT_NEAR(value_of(found, "training/rollout_probs_diff_mean"), 0.1, 1e-12);
  EXPECT_NEAR(value_of(found, "rollout_corr/kl"), -0.2231435513142097, 1e-12);
  EXPECT_NEAR(value_of(found, "rollout_corr/k3_kl"), 0.0268564486857903, 1e-12);
  EXPECT_NEAR(value_of(found, "rollout_corr/training_ppl"), 2, 1e-12);
  EXPECT_NEAR(value_of(found, "rollout_corr/chi2_token"), 1.5625 - 1, 1e-12);
}

TEST(Mismatch, OfNothingSaysSoAndNoNumber) {
  Ragged rows;
  rows.add(1);
  const std::vector<uint8_t> mask{0};
  const std::vector<double> any{NAN};
  const Metrics found = mismatch({rows, mask, any, any});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].value, 0);
}

TEST(Reduction, IsWhatTheMetricSaysNotWhatItsNameHolds) {
  const Metrics found = reduced({{"global_seqlen/minmax_diff", 1, Reduction::kMean},
                                 {"global_seqlen/minmax_diff", 3, Reduction::kMean},
                                 {"actor/pg_loss", 1, Reduction::kSum},
                                 {"actor/pg_loss", 2, Reduction::kSum},
                                 {"x/min", 4, Reduction::kMin},
                                 {"x/min", 2, Reduction::kMin},
                                 {"x/max", 4, Reduction::kMax},
                                 {"x/max", 9, Reduction::kMax}});
  EXPECT_EQ(value_of(found, "global_seqlen/minmax_diff"), 2);
  EXPECT_EQ(value_of(found, "actor/pg_loss"), 3);
  EXPECT_EQ(value_of(found, "x/min"), 2);
  EXPECT_EQ(value_of(found, "x/max"), 9);
}

TEST(Reduction, OfOneNameInTwoWaysIsRefused) {
  EXPECT_THROW(reduced({{"a", 1, Reduction::kMean}, {"a", 1, Reduction::kMax}}), Error);
}

TEST(Lengths, CountThoseAtTheMost) {
  Metrics found;
  add_lengths(found, "response_length", std::vector<double>{2, 8, 8, 4}, 8);
  EXPECT_EQ(value_of(found, "response_length/clip_ratio"), 0.5);
  EXPECT_EQ(value_of(found, "response_length/mean"), 5.5);
}

}  // namespace
}  // namespace sf::rl
