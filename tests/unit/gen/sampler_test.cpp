// SPDX-License-Identifier: Apache-2.0
#include "gen/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace sf::gen {
namespace {

std::vector<float> logs(std::vector<double> probabilities) {
  std::vector<float> out;
  for (double p : probabilities) out.push_back(static_cast<float>(std::log(p)));
  return out;
}

TEST(Sampler, GreedyTakesTheLowestIdOfATie) {
  Law law = law_of(std::vector<float>{1, 3, 3, 2}, {}, {});
  EXPECT_EQ(law.ids, std::vector<int32_t>{1});
  EXPECT_EQ(law.pick(0.999), 1);
}

TEST(Sampler, TemperatureDividesTheScores) {
  Law law = law_of(logs({0.8, 0.2}), {.temperature = 0.5}, {});
  EXPECT_NEAR(law.probabilities[0], 0.64 / 0.68, 1e-6);  // p^2, renormalised; scores are fp32
}

TEST(Sampler, TopKKeepsScoresEqualToTheKth) {
  Law law = law_of(std::vector<float>{5, 2, 4, 4, 1}, {.temperature = 1, .top_k = 2}, {});
  EXPECT_EQ(law.ids, (std::vector<int32_t>{0, 2, 3}));
}

TEST(Sampler, TopPKeepsTheTokenThatCrossesTheMass) {
  std::vector<float> scores = logs({0.1, 0.5, 0.25, 0.15});
  EXPECT_EQ(law_of(scores, {.temperature = 1, .top_p = 0.6}, {}).ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(law_of(scores, {.temperature = 1, .top_p = 0.01}, {}).ids, (std::vector<int32_t>{1}));
}

TEST(Sampler, TopPFindsANucleusOfAnySize) {
  std::vector<float> scores;
  for (int i = 0; i < 5000; ++i) scores.push_back(static_cast<float>((i * 37) % 5000) / 1000);
  for (double top_p : {0.01, 0.1, 0.5, 0.9, 0.999}) {
    std::vector<float> sorted = scores;
    std::sort(sorted.rbegin(), sorted.rend());
    double total = 0, mass = 0;
    for (float s : sorted) total += std::exp(double{s} - sorted[0]);
    size_t wanted = 0;
    for (; wanted == 0 || mass < top_p * total; ++wanted) mass += std::exp(double{sorted[wanted]} - sorted[0]);
    Law law = law_of(scores, {.temperature = 1, .top_p = top_p}, {});
    EXPECT_EQ(law.ids.size(), wanted) << top_p;
    EXPECT_TRUE(std::is_sorted(law.ids.begin(), law.ids.end()));
  }
}

TEST(Sampler, MinPComparesWithTheBest) {
  EXPECT_EQ(law_of(logs({0.5, 0.24, 0.26}), {.temperature = 1, .min_p = 0.5}, {}).ids, (std::vector<int32_t>{0, 2}));
}

TEST(Sampler, TemperatureComesBeforeTopP) {
  // At T = 2 the masses are 0.60, 0.25, 0.15 of sqrt-weights and the second token is needed; at T = 1 the first is
  // enough.
  std::vector<float> scores = logs({0.80, 0.15, 0.05});
  EXPECT_EQ(law_of(scores, {.temperature = 1, .top_p = 0.7}, {}).ids.size(), 1u);
  EXPECT_EQ(law_of(scores, {.temperature = 2, .top_p = 0.7}, {}).ids.size(), 2u);
}

TEST(Sampler, TopKComesBeforeTopP) {
  // After top-k the two left share all mass: 0.4 / 0.7 = 0.57 reaches 0.55. Over all four, 0.4 would not.
  EXPECT_EQ(law_of(logs({0.4, 0.3, 0.2, 0.1}), {.temperature = 1, .top_k = 2, .top_p = 0.55}, {}).ids.size(), 1u);
}

TEST(Sampler, RepetitionPenaltyCountsATokenOnceAndWorksUnderGreedy) {
  std::vector<float> scores{2, 1.5f, -1};
  std::vector<int32_t> history{0, 0, 0, 2};
  EXPECT_EQ(law_of(scores, {.repetition_penalty = 1.5}, history).ids, std::vector<int32_t>{1});
  EXPECT_EQ(law_of(scores, {.repetition_penalty = 1.3}, history).ids, std::vector<int32_t>{0});  // 2 / 1.3 > 1.5
  Law law = law_of(scores, {.temperature = 1, .repetition_penalty = 2}, history);
  EXPECT_NEAR(std::log(law.of(2) / law.of(0)), -2 - 1, 1e-6);  // -1 * 2 and 2 / 2
}

TEST(Sampler, AScoreThatIsNotFiniteIsNeverDrawn) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(law_of(std::vector<float>{-inf, 0, NAN, inf}, {.temperature = 1}, {}).ids, std::vector<int32_t>{1});
  EXPECT_THROW(law_of(std::vector<float>{-inf, NAN}, {.temperature = 1}, {}), Error);
}

TEST(Sampler, ScoresOfADraftVocabularyCarryTargetIds) {
  std::vector<int32_t> targets{3, 8};
  Law law = law_of(std::vector<float>{0, 1}, {.temperature = 1}, {}, targets);
  EXPECT_EQ(law.ids, targets);
  EXPECT_NEAR(law.of(8), 1 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_EQ(law.of(1), 0);
}

TEST(Law, PickIsTheInverseOfTheCumulativeSum) {
  Law law{{2, 5, 9}, {0.25, 0.5, 0.25}};
  EXPECT_EQ(law.pick(0), 2);
  EXPECT_EQ(law.pick(0.25), 5);
  EXPECT_EQ(law.pick(0.7499), 5);
  EXPECT_EQ(law.pick(0.75), 9);
  EXPECT_EQ((Law{{2, 5}, {1 - 1e-12, 0}}).pick(std::nextafter(1.0, 0.0)), 2);
}

TEST(Law, TheLawAfterARejectionIsThePositivePart) {
  Law rest = Law{{1, 2, 3}, {0.5, 0.3, 0.2}}.minus({{2, 3, 4}, {0.5, 0.1, 0.4}});
  EXPECT_EQ(rest.ids, (std::vector<int32_t>{1, 3}));
  EXPECT_NEAR(rest.probabilities[0], 0.5 / 0.6, 1e-15);
  Law same{{1, 2}, {0.5, 0.5}};
  EXPECT_EQ(same.minus(same).ids, same.ids);
}

TEST(Sampler, EverySettingOutOfRangeIsNamed) {
  for (auto [settings, name] :
       std::vector<std::pair<Sampling, std::string>>{{{.temperature = -1}, "temperature"},
                                                     {{.top_k = -1}, "top_k"},
                                                     {{.top_p = 0}, "top_p"},
                                                     {{.min_p = 2}, "min_p"},
                                                     {{.repetition_penalty = 0}, "repetition_penalty"}}) {
    try {
      settings.check();
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::kConfig);
      EXPECT_NE(error.message().find(name), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace sf::gen
