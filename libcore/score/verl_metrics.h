// SPDX-License-Identifier: Apache-2.0
// What verl reports of N answers to a question (rl_lora 5.7): means over 1,000 draws with replacement by NumPy's
// generator of seed 42, bit for bit. Biased beside the closed form of pass@k; there so that published numbers can be
// compared.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "score/scores.h"

namespace sf::score {

// rows x n numbers below `below`, row by row: what numpy.random.choice draws after seed(42).
std::vector<uint32_t> verl_draws(uint32_t below, int64_t rows, int64_t n);

struct MeanStd {
  double mean = 0, std = 0;  // over the draws; std of the population
};
struct VerlMetrics {
  MeanStd best, worst;
  MeanStd majority;  // the most frequent form; the first seen wins a tie
};
// Of draws of n among `values`; `forms` has one entry a value.
VerlMetrics verl_metrics(const std::vector<double>& values, const std::vector<std::string>& forms, int64_t n);

// One line a size 2, 4, 8, ... below N, and N; averaged over questions. kData unless every question has N > 1 answers.
struct VerlLine {
  int64_t n = 0;
  double best = 0, worst = 0, majority = 0;
};
std::vector<VerlLine> verl_lines(const Scores& scores);

}  // namespace sf::score
