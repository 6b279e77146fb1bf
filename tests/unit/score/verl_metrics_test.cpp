// SPDX-License-Identifier: Apache-2.0
// The known draws and means of rl_lora 5.7, made by NumPy's generator.
#include "score/verl_metrics.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace sf::score {
namespace {

TEST(VerlDraws, AreThoseOfNumPyAfterSeed42) {
  using List = std::vector<uint32_t>;
  EXPECT_EQ(verl_draws(10, 1, 12), (List{6, 3, 7, 4, 6, 9, 2, 6, 7, 4, 3, 7}));
  EXPECT_EQ(verl_draws(4, 1, 16), (List{2, 3, 0, 2, 2, 3, 0, 0, 2, 1, 2, 2, 2, 2, 3, 0}));
  EXPECT_EQ(verl_draws(8, 2, 8), (List{6, 3, 4, 6, 2, 7, 4, 4, 6, 1, 2, 6, 2, 2, 7, 4}));
  EXPECT_EQ(verl_draws(3, 4, 4), (List{2, 0, 2, 2, 0, 0, 2, 1, 2, 2, 2, 2, 0, 2, 1, 0}));
  EXPECT_EQ(verl_draws(2, 16, 1), (List{0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0}));
  EXPECT_EQ(verl_draws(1, 1, 3), (List{0, 0, 0}));
}

VerlMetrics of(const std::vector<double>& values, int64_t n) {
  return verl_metrics(values, std::vector<std::string>(values.size(), "a"), n);
}

// Means are thousandths, so they are exact to rounding; the spreads are given to ten digits.
TEST(VerlMetrics, BestAndWorstAreTheKnownMeansOverDraws) {
  VerlMetrics two = of({1, -1, -1, 1}, 2), four = of({1, -1, -1, 1}, 4);
  EXPECT_NEAR(two.best.mean, .476, 1e-12);
  EXPECT_NEAR(two.best.std, .8794452797, 1e-10);
  EXPECT_NEAR(two.worst.mean, -.444, 1e-12);
  EXPECT_NEAR(two.worst.std, .8960267853, 1e-10);
  EXPECT_NEAR(four.best.mean, .852, 1e-12);
  EXPECT_NEAR(four.best.std, .5235417844, 1e-10);
  EXPECT_NEAR(four.worst.mean, -.836, 1e-12);
  EXPECT_NEAR(four.worst.std, .5487294415, 1e-10);
  EXPECT_NEAR(of({1, 0, 0, 0}, 2).best.mean, .453, 1e-12);
  EXPECT_NEAR(of({1, 0, 0, 0}, 2).worst.mean, .072, 1e-12);
  EXPECT_NEAR(of({1, 0, 0, 0}, 4).best.mean, .687, 1e-12);
  EXPECT_NEAR(of({1, 0, 0, 0}, 4).worst.mean, .003, 1e-12);
  const std::vector<double> eight = {1, -1, -1, -1, 1, -1, -1, -1};
  EXPECT_NEAR(of(eight, 2).best.mean, -.094, 1e-12);
  EXPECT_NEAR(of(eight, 4).best.mean, .374, 1e-12);
  EXPECT_NEAR(of(eight, 8).best.mean, .8, 1e-12);
  EXPECT_NEAR(of(eight, 8).best.std, .6, 1e-12);
  EXPECT_NEAR(of(eight, 2).worst.mean, -.856, 1e-12);
  EXPECT_NEAR(of(eight, 4).worst.mean, -.994, 1e-12);
  EXPECT_NEAR(of(eight, 8).worst.mean, -1, 1e-12);
}

TEST(VerlMetrics, TheFirstSeenWinsATieOfTheMajority) {
  const std::vector<double> values = {1, 0, 0, 1};
  const std::vector<std::string> forms = {"a", "b", "b", "c"};
  EXPECT_NEAR(verl_metrics(values, forms, 2).majority.mean, .522, 1e-12);
  EXPECT_NEAR(verl_metrics(values, forms, 2).majority.std, .4995157655, 1e-10);
  EXPECT_NEAR(verl_metrics(values, forms, 4).majority.mean, .419, 1e-12);
  EXPECT_NEAR(verl_metrics(values, forms, 4).majority.std, .4933953790, 1e-10);
}

TEST(VerlMetrics, AreAveragedOverQuestionsOfEqualSize) {
  Scores scores{.origin = "s", .header = {}, .ids = {"p", "q"}, .answers = {}};
  for (uint32_t question : {0u, 1u})
    for (int sample = 0; sample < 4; ++sample) {
      ScoredAnswer answer{.question = question, .sample = sample};
      if (question == 0 && sample == 0) answer.outcome = Outcome::kCorrect;
      scores.answers.push_back(answer);
    }
  std::vector<VerlLine> lines = verl_lines(scores);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].n, 4);
  EXPECT_NEAR(lines[0].best, .453 / 2, 1e-12);
  EXPECT_NEAR(lines[1].best, .687 / 2, 1e-12);
  scores.answers.pop_back();
  EXPECT_THROW(verl_lines(scores), Error);
}

}  // namespace
}  // namespace sf::score
