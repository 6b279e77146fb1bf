// SPDX-License-Identifier: Apache-2.0
// What a table of verdicts says, with its uncertainty. The question is the cluster: answers to one question are not
// independent, so every interval and every test works on questions. Pure; random draws are counter based.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sf::score {

// A question's n answers of which c are correct. Requires: 0 <= c <= n, n >= 1.
struct Tally {
  int64_t n = 0, c = 0;
  double rate() const { return static_cast<double>(c) / static_cast<double>(n); }
};

struct Interval {
  double low = 0, high = 1;
};

constexpr double kZ95 = 1.959963984540054;  // the normal law's 97.5 % point

// Wilson's score interval of `successes` (possibly fractional) of `trials`, 95 %.
Interval wilson(double successes, double trials);

// Chance that at least one of k answers drawn without replacement is correct: 1 - C(n-c, k) / C(n, k). Chen et al.
// 2021. Requires: 1 <= k <= n.
double pass_at(const Tally& tally, int64_t k);

// Mean over questions of c/n, which estimates pass@1. Exact up to its one rounding: 24 of 60 answers are 0.4.
double mean_rate(const std::vector<Tally>& tallies);
// Standard error of mean_rate: sqrt(sample variance of the questions' rates / questions); it holds the sampling noise.
// 0 for fewer than two questions.
double clustered_error(const std::vector<Tally>& tallies);
// What drawing n answers a question adds to it: sqrt(mean of rate (1 - rate) / (n - 1) / questions), the unbiased
// variance n / (n - 1) rate (1 - rate) of a question's answers over their number. A question of one answer adds
// nothing: one answer does not say how it varies.
double within_error(const std::vector<Tally>& tallies);
// 95 % interval of pass@1: Wilson's where every n is 1; else Wilson's form at the effective number of answers
// rate (1 - rate) / clustered_error^2, kept between the number of questions and the number of answers.
Interval mean_interval(const std::vector<Tally>& tallies);
// 95 % interval of the mean of values, one a question: percentiles of `draws` bootstrap means over questions.
Interval bootstrap_interval(const std::vector<double>& values, int64_t draws, uint64_t seed);

// maj@n of one question: `votes` are the normal forms of its answers ("" does not vote), `correct` says which form is
// right. A tie of t winners counts 1/t if the right form is among them. 0 where nobody votes.
struct Vote {
  std::string form;
  bool correct = false;
};
double majority(const std::vector<Vote>& votes);
// The same for k of the n answers: mean over all subsets if there are at most `most`, else over `most` drawn ones.
inline constexpr int64_t kMostSubsets = 10'000;
double majority_at(const std::vector<Vote>& votes, int64_t k, uint64_t seed, int64_t most = kMostSubsets);

// Two sets of answers to the same questions, in the same order.
struct Paired {
  double difference = 0;                // mean of b's rate - a's rate
  Interval interval;                    // 95 %, bootstrap over questions: 10,000 draws, fewer above 1,000 questions
  double p = 1;                         // two-sided sign-flip test of "no difference"
  bool exact = true;                    // p is a count of all sign flips, not a sample of up to 100,000
  int64_t up = 0, down = 0, equal = 0;  // questions
};
Paired paired_test(const std::vector<Tally>& a, const std::vector<Tally>& b, uint64_t seed);

// Holm's adjustment for looking at several p values: at least each of them, at most 1, in the same order.
std::vector<double> holm(const std::vector<double>& p);

// Of n answers, those in which an answer could be read, right or wrong, and those that are right.
// Requires: 0 <= correct <= readable <= n, n >= 1.
struct Reading {
  int64_t n = 0, readable = 0, correct = 0;
  double rate() const { return static_cast<double>(correct) / static_cast<double>(n); }
  double format() const { return static_cast<double>(readable) / static_cast<double>(n); }
  // Of the readable ones; 0 of none.
  double correctness() const { return readable > 0 ? static_cast<double>(correct) / static_cast<double>(readable) : 0; }
};

// How much of a gain is form. rate = format * correctness, so a difference of rates is exactly the sum of both parts:
// each factor's own difference times the other factor's mean.
struct Gain {
  double format = 0, correctness = 0;
};
Gain gain_of(const Reading& before, const Reading& after);

// Rewards of +1 and -1 as an accuracy, and back.
double accuracy_of_reward(double reward);
double reward_of_accuracy(double accuracy);

}  // namespace sf::score
