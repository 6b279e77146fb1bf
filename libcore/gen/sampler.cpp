// SPDX-License-Identifier: Apache-2.0
#include "gen/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace sf::gen {
namespace {

struct Scored {
  float score;
  int32_t id;
};

void penalise(std::vector<Scored>& row, double penalty, std::span<const int32_t> history) {
  std::vector<int32_t> seen(history.begin(), history.end());
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  auto item = row.begin();
  for (int32_t id : seen) {
    item = std::lower_bound(item, row.end(), id, [](const Scored& s, int32_t wanted) { return s.id < wanted; });
    if (item == row.end()) break;
    if (item->id != id) continue;
    item->score = static_cast<float>(item->score < 0 ? item->score * penalty : item->score / penalty);
  }
}

bool better(const Scored& a, const Scored& b) {
  return a.score != b.score ? a.score > b.score : a.id < b.id;
}

void keep_top_k(std::vector<Scored>& row, int64_t k) {
  if (k <= 0 || static_cast<size_t>(k) >= row.size()) return;
  std::vector<Scored> copy = row;
  std::nth_element(copy.begin(), copy.begin() + (k - 1), copy.end(), better);
  const float least = copy[static_cast<size_t>(k - 1)].score;
  std::erase_if(row, [&](const Scored& s) { return s.score < least; });
}

// Probability up to a common factor.
double weight(const Scored& s, float best) {
  return std::exp(double{s.score} - double{best});
}

void keep_top_p(std::vector<Scored>& row, double top_p, float best) {
  if (top_p >= 1) return;
  double total = 0;
  for (const Scored& s : row) total += weight(s, best);
  // A nucleus is small as a rule: look for it among the best few before sorting everything. The slack keeps a sum in
  // another order from ending the search too early.
  for (size_t few = 64; few < row.size(); few *= 8) {
    const auto end = row.begin() + static_cast<std::ptrdiff_t>(few);
    std::nth_element(row.begin(), end, row.end(), better);
    double mass = 0;
    for (auto s = row.begin(); s != end; ++s) mass += weight(*s, best);
    if (mass < top_p * total * (1 + 1e-9)) continue;
    row.resize(few);
    break;
  }
  std::sort(row.begin(), row.end(), better);
  double above = 0;  // mass of the better ones
  size_t kept = 0;
  for (; kept < row.size() && (kept == 0 || above < top_p * total); ++kept) above += weight(row[kept], best);
  row.resize(kept);
  std::sort(row.begin(), row.end(), [](const Scored& a, const Scored& b) { return a.id < b.id; });
}

}  // namespace

void Sampling::check() const {
  SF_CHECK(temperature >= 0 && std::isfinite(temperature), Exit::kConfig, "temperature must be 0 or more, found {}",
           temperature);
  SF_CHECK(top_k >= 0, Exit::kConfig, "top_k must be 0 (all) or more, found {}", top_k);
  SF_CHECK(top_p > 0 && top_p <= 1, Exit::kConfig, "top_p must be in (0, 1], found {}", top_p);
  SF_CHECK(min_p >= 0 && min_p <= 1, Exit::kConfig, "min_p must be in [0, 1], found {}", min_p);
  SF_CHECK(repetition_penalty > 0 && std::isfinite(repetition_penalty), Exit::kConfig,
           "repetition_penalty must be above 0, found {}", repetition_penalty);
}

double Law::of(int32_t id) const {
  auto found = std::lower_bound(ids.begin(), ids.end(), id);
  return found != ids.end() && *found == id ? probabilities[static_cast<size_t>(found - ids.begin())] : 0;
}

int32_t Law::pick(double u) const {
  double sum = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    sum += probabilities[i];
    if (u < sum) return ids[i];
  }
  // The sum may round to just below 1: the last token that can be drawn at all.
  for (size_t i = ids.size(); i-- > 0;)
    if (probabilities[i] > 0) return ids[i];
  fail(Exit::kSoftware, "a law without a token");
}

Law Law::minus(const Law& other) const {
  Law rest;
  double total = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const double left = std::max(probabilities[i] - other.of(ids[i]), 0.0);
    if (left <= 0) continue;
    rest.ids.push_back(ids[i]);
    rest.probabilities.push_back(left);
    total += left;
  }
  if (!(total > 0)) return *this;
  for (double& p : rest.probabilities) p /= total;
  return rest;
}

Law law_of(std::span<const float> scores, const Sampling& sampling, std::span<const int32_t> history,
           std::span<const int32_t> target_ids) {
  SF_ASSERT(target_ids.empty() || target_ids.size() == scores.size());
  std::vector<Scored> row;
  row.reserve(scores.size());
  for (size_t i = 0; i < scores.size(); ++i)
    if (std::isfinite(scores[i]))
      row.push_back({scores[i], target_ids.empty() ? static_cast<int32_t>(i) : target_ids[i]});
  SF_CHECK(!row.empty(), Exit::kData, "no score of {} is finite: the model's output is broken", scores.size());
  if (sampling.needs_history()) penalise(row, sampling.repetition_penalty, history);
  if (sampling.greedy()) return {{std::min_element(row.begin(), row.end(), better)->id}, {1.0}};
  const auto temperature = static_cast<float>(sampling.temperature);
  if (temperature != 1)
    for (Scored& s : row) s.score /= temperature;
  const float best = std::min_element(row.begin(), row.end(), better)->score;
  keep_top_k(row, sampling.top_k);
  keep_top_p(row, sampling.top_p, best);
  if (sampling.min_p > 0) std::erase_if(row, [&](const Scored& s) { return weight(s, best) < sampling.min_p; });
  Law law;
  double total = 0;
  for (const Scored& s : row) {
    law.ids.push_back(s.id);
    law.probabilities.push_back(weight(s, best));
    total += law.probabilities.back();
  }
  for (double& p : law.probabilities) p /= total;
  return law;
}

}  // namespace sf::gen
