// SPDX-License-Identifier: Apache-2.0
#include "score/verl_metrics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <string_view>

#include "base/error.h"

namespace sf::score {
namespace {

constexpr int64_t kDraws = 1000;
constexpr uint32_t kSeed = 42;

MeanStd mean_std(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  MeanStd result{std::accumulate(values.begin(), values.end(), 0.0) / count, 0};
  for (double value : values) result.std += (value - result.mean) * (value - result.mean);
  result.std = std::sqrt(result.std / count);
  return result;
}

// Forms by number, in the order in which the answers show them.
std::vector<uint32_t> numbered(const std::vector<std::string>& forms) {
  std::map<std::string_view, uint32_t> numbers;
  std::vector<uint32_t> result;
  for (const std::string& form : forms)
    result.push_back(numbers.emplace(form, static_cast<uint32_t>(numbers.size())).first->second);
  return result;
}

// Position in the draw of the first answer whose form is the most frequent one.
size_t majority_of(const uint32_t* drawn, size_t n, const std::vector<uint32_t>& forms, std::vector<int64_t>& count) {
  std::fill(count.begin(), count.end(), 0);
  for (size_t i = 0; i < n; ++i) ++count[forms[drawn[i]]];
  const int64_t most = *std::max_element(count.begin(), count.end());
  for (size_t i = 0; i < n; ++i)
    if (count[forms[drawn[i]]] == most) return i;
  return 0;
}

VerlMetrics over_draws(const std::vector<uint32_t>& draws, const std::vector<double>& values,
                       const std::vector<std::string>& forms) {
  const size_t n = draws.size() / kDraws;
  const std::vector<uint32_t> form = numbered(forms);
  std::vector<int64_t> count(values.size());
  std::vector<double> best, worst, majority;
  for (size_t at = 0; at < draws.size(); at += n) {
    const uint32_t* drawn = &draws[at];
    double most = values[drawn[0]], least = most;
    for (size_t i = 1; i < n; ++i) {
      most = std::max(most, values[drawn[i]]);
      least = std::min(least, values[drawn[i]]);
    }
    best.push_back(most);
    worst.push_back(least);
    majority.push_back(values[drawn[majority_of(drawn, n, form, count)]]);
  }
  return {mean_std(best), mean_std(worst), mean_std(majority)};
}

}  // namespace

std::vector<uint32_t> verl_draws(uint32_t below, int64_t rows, int64_t n) {
  SF_ASSERT(below >= 1);
  const auto mask = static_cast<uint32_t>((uint64_t{1} << std::bit_width(below - 1)) - 1);
  std::mt19937 generator(kSeed);
  std::vector<uint32_t> draws(static_cast<size_t>(rows * n), 0);
  if (below == 1) return draws;  // NumPy draws nothing then
  for (uint32_t& draw : draws) {
    do draw = static_cast<uint32_t>(generator()) & mask;
    while (draw >= below);
  }
  return draws;
}

VerlMetrics verl_metrics(const std::vector<double>& values, const std::vector<std::string>& forms, int64_t n) {
  SF_ASSERT(!values.empty() && values.size() == forms.size() && n >= 1);
  return over_draws(verl_draws(static_cast<uint32_t>(values.size()), kDraws, n), values, forms);
}

std::vector<VerlLine> verl_lines(const Scores& scores) {
  std::vector<std::vector<double>> values(scores.ids.size());
  std::vector<std::vector<std::string>> forms(scores.ids.size());
  for (const ScoredAnswer& answer : scores.answers) {
    values[answer.question].push_back(answer.outcome == Outcome::kCorrect);
    forms[answer.question].push_back(answer.normal);
  }
  const size_t answers = values.empty() ? 0 : values[0].size();
  SF_CHECK(answers > 1, Exit::kData, "verl's metrics need several answers to each question, found {}", answers);
  for (size_t i = 0; i < values.size(); ++i)
    SF_CHECK(values[i].size() == answers, Exit::kData,
             "verl's metrics need the same number of answers to each question: question {} has {}, {} has {}",
             scores.ids[i], values[i].size(), scores.ids[0], answers);
  std::vector<VerlLine> lines;
  const auto most = static_cast<int64_t>(answers);
  for (int64_t n = 2; n <= most; n = n < most ? std::min(2 * n, most) : n + 1) {
    const std::vector<uint32_t> draws = verl_draws(static_cast<uint32_t>(answers), kDraws, n);
    VerlLine line{.n = n};
    for (size_t i = 0; i < values.size(); ++i) {
      const VerlMetrics one = over_draws(draws, values[i], forms[i]);
      line.best += one.best.mean;
      line.worst += one.worst.mean;
      line.majority += one.majority.mean;
    }
    const auto questions = static_cast<double>(values.size());
    lines.push_back({n, line.best / questions, line.worst / questions, line.majority / questions});
  }
  return lines;
}

}  // namespace sf::score
