// SPDX-License-Identifier: Apache-2.0
#include "rl/correction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "rl/rejection.h"

namespace sf::rl {
namespace {

// Two sequences of two tokens, the last one not there; ratios 4, 1/4, 2.
class Correction : public ::testing::Test {
 protected:
  Correction() { rows_.add(2), rows_.add(2); }
  Gap gap() const { return {rows_, mask_, old_, rollout_}; }
  std::vector<double> weights(std::string_view bounds, CorrectionLevel level = CorrectionLevel::kToken) const {
    return correction_weights(gap(), {.level = level, .bounds = correction_bounds(bounds)});
  }
  std::vector<uint8_t> kept(std::string_view names, std::string_view thresholds) const {
    return surviving(gap(), criteria(names, thresholds));
  }
  Ragged rows_;
  std::vector<uint8_t> mask_{1, 1, 1, 0};
  std::vector<double> old_{std::log(0.8), std::log(0.1), std::log(0.6), NAN};
  std::vector<double> rollout_{std::log(0.2), std::log(0.4), std::log(0.3), 1};
};

void expect_near(const std::vector<double>& found, const std::vector<double>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-12) << i;
}

TEST_F(Correction, ByTokenIsTheRatioCutAbove) {
  expect_near(weights("2.0"), {2, 0.25, 2, 0});
}

TEST_F(Correction, WithTwoBoundsIsNothingOutsideOfThem) {
  expect_near(weights("0.5_3"), {0, 0, 2, 0});
}

TEST_F(Correction, BySequenceIsOneRatioForAllItsTokens) {
  expect_near(weights("3", CorrectionLevel::kSequence), {1, 1, 2, 0});
}

TEST_F(Correction, IsNormalisedByItsMean) {
  expect_near(correction_weights(gap(), {.bounds = correction_bounds("4"), .normalised = true}),
              {4 * 3 / 6.25, 0.25 * 3 / 6.25, 2 * 3 / 6.25, 0});
}

TEST_F(Correction, SaysWhatTheWeightsWereBeforeTheyWereBounded) {
  Metrics metrics;
  correction_weights(gap(), {.bounds = correction_bounds("3")}, &metrics);
  auto value = [&](const char* name) {
    auto found = std::ranges::find(metrics, std::string("rollout_corr/rollout_is_") + name, &Metric::name);
    return found == metrics.end() ? NAN : found->value;
  };
  EXPECT_DOUBLE_EQ(value("max"), 4);
  EXPECT_DOUBLE_EQ(value("ratio_fraction_high"), 1.0 / 3);
  EXPECT_DOUBLE_EQ(value("ratio_fraction_low"), 1.0 / 3);
  const double mean = (3 + 0.25 + 2) / 3;
  EXPECT_NEAR(value("eff_sample_size"), 3 * mean * mean / (9 + 0.0625 + 4), 1e-12);
}

TEST_F(Correction, RefusesBoundsThatAreNone) {
  for (const char* text : {"", "true", "0", "-1", "3_2", "1_2_3", "inf", "2x"})
    EXPECT_THROW(correction_bounds(text), Error) << text;
}

TEST_F(Correction, RejectsTokensOrWholeSequences) {
  EXPECT_EQ(kept("token_k1", "3"), (std::vector<uint8_t>{0, 0, 1, 0}));
  EXPECT_EQ(kept("token_k1", "0.1_3"), (std::vector<uint8_t>{1, 0, 1, 0}));
  EXPECT_EQ(kept("seq_sum_k1", "1.5"), (std::vector<uint8_t>{1, 1, 0, 0}));
  EXPECT_EQ(kept("seq_max_k2", "0.5"), (std::vector<uint8_t>{0, 0, 1, 0}));
  EXPECT_EQ(kept("seq_mean_k3", "0.4"), (std::vector<uint8_t>{0, 0, 1, 0}));
}

TEST_F(Correction, RejectsWhatFailsAnyCriterion) {
  EXPECT_EQ(kept("token_k1,seq_sum_k1", "0.1_3,1.5"), (std::vector<uint8_t>{1, 0, 0, 0}));
}

TEST_F(Correction, RefusesCriteriaAndThresholdsThatAreNone) {
  EXPECT_THROW(criteria("seq_max_k1", "2"), Error);
  EXPECT_THROW(criteria("token_k4", "2"), Error);
  EXPECT_THROW(criteria("token_k1,token_k2", "2,2,2"), Error);
  EXPECT_THROW(criteria("token_k2", "1_2"), Error);
  EXPECT_THROW(criteria("token_k1", "0.5"), Error);
}

}  // namespace
}  // namespace sf::rl
