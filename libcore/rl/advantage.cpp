// SPDX-License-Identifier: Apache-2.0
#include "rl/advantage.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/fault.h"
#include "rl/most_score.h"

namespace sf::rl {
namespace {

using Members = std::vector<size_t>;

// In the order in which each group is first named.
std::vector<Members> members_of(std::span<const std::string> groups) {
  std::map<std::string_view, size_t> index;
  std::vector<Members> members;
  for (size_t i = 0; i < groups.size(); ++i) {
    auto [found, fresh] = index.emplace(groups[i], members.size());
    if (fresh) members.emplace_back();
    members[found->second].push_back(i);
  }
  return members;
}

double mean_of(const Members& members, std::span<const double> scores) {
  double sum = 0;
  for (size_t i : members) sum += scores[i];
  return sum / static_cast<double>(members.size());
}

double deviation_of(const Members& members, std::span<const double> scores, double mean) {
  double squares = 0;
  for (size_t i : members) squares += (scores[i] - mean) * (scores[i] - mean);
  return std::sqrt(squares / static_cast<double>(members.size() - (fault("rl.population_deviation") ? 0 : 1)));
}

bool all_equal(const Members& members, std::span<const double> scores) {
  return std::ranges::all_of(members, [&](size_t i) { return scores[i] == scores[members.front()]; });
}

double mean_by_length(const Members& members, std::span<const double> scores, std::span<const int64_t> lengths) {
  double sum = 0, tokens = 0;
  for (size_t i : members) {
    sum += static_cast<double>(lengths[i]) * scores[i];
    tokens += static_cast<double>(lengths[i]);
  }
  return tokens > 0 ? sum / tokens : 0;
}

void pass_k(const Members& members, std::span<const double> scores, double epsilon, std::vector<double>& to) {
  SF_CHECK(members.size() > 1, Exit::kConfig, "pass-k wants 2 or more responses to a prompt, found 1");
  size_t best = members[0];
  for (size_t i : members)
    if (scores[i] > scores[best]) best = i;
  double second = -INFINITY;
  for (size_t i : members)
    if (i != best) second = std::max(second, scores[i]);
  to[best] = (scores[best] - second) / (deviation_of(members, scores, mean_of(members, scores)) + epsilon);
}

void of_group(const Members& members, std::span<const double> scores, const AdvantageOptions& options,
              std::span<const int64_t> lengths, std::vector<double>& to) {
  const double n = static_cast<double>(members.size()), mean = mean_of(members, scores);
  double scale = 1, base = mean;
  switch (options.estimator) {
    case Estimator::kPassK:
      return pass_k(members, scores, options.epsilon, to);
    case Estimator::kGrpo:
      scale = 1 / (deviation_of(members, scores, mean) + options.epsilon);
      break;
    case Estimator::kRloo:
      scale = n / (n - 1);
      break;
    case Estimator::kOpo:
      base = mean_by_length(members, scores, lengths);
      break;
    case Estimator::kDrGrpo:
      break;
  }
  // The mean of equal scores may round beside them: they are worth exactly nothing.
  const bool equal = all_equal(members, scores);
  for (size_t i : members) to[i] = equal ? 0 : (scores[i] - base) * scale;
}

}  // namespace

Estimator estimator_from_name(std::string_view name) {
  if (name == "grpo") return Estimator::kGrpo;
  if (name == "dr-grpo") return Estimator::kDrGrpo;
  if (name == "rloo") return Estimator::kRloo;
  if (name == "opo") return Estimator::kOpo;
  SF_CHECK(name == "pass-k", Exit::kConfig, "advantage \"{}\": wanted grpo, dr-grpo, rloo, opo or pass-k", name);
  return Estimator::kPassK;
}

Singleton singleton_from_name(std::string_view name) {
  if (name == "raw") return Singleton::kRaw;
  if (name == "zero") return Singleton::kZero;
  SF_CHECK(name == "drop", Exit::kConfig, "a group of one \"{}\": wanted raw, zero or drop", name);
  return Singleton::kDrop;
}

Advantages advantages(std::span<const std::string> groups, std::span<const double> scores,
                      const AdvantageOptions& options, std::span<const int64_t> lengths) {
  SF_ASSERT(groups.size() == scores.size());
  SF_ASSERT(options.estimator != Estimator::kOpo || lengths.size() == scores.size());
  for (size_t i = 0; i < scores.size(); ++i)
    SF_CHECK(std::abs(scores[i]) <= kMostScore, Exit::kData,
             "the score of response {} of group {} is {}, wanted a number from -{:g} to {:g}", i, groups[i], scores[i],
             kMostScore, kMostScore);
  Advantages result{std::vector<double>(scores.size(), 0), std::vector<uint8_t>(scores.size(), 1)};
  for (const Members& members : members_of(groups)) {
    ++result.groups;
    if (members.size() > 1 || options.estimator == Estimator::kPassK) {
      result.zero_variance += all_equal(members, scores);
      of_group(members, scores, options, lengths, result.of);
      continue;
    }
    const size_t only = members.front();
    ++result.singletons;
    const double scale = options.estimator == Estimator::kGrpo ? 1 / (1 + options.epsilon) : 1;
    if (options.singleton == Singleton::kRaw) result.of[only] = scores[only] * scale;
    if (options.singleton == Singleton::kDrop) result.kept[only] = 0;
  }
  return result;
}

std::vector<uint8_t> teaches(std::span<const std::string> groups, std::span<const double> scores) {
  SF_ASSERT(groups.size() == scores.size());
  std::vector<uint8_t> result(scores.size(), 0);
  for (const Members& members : members_of(groups))
    if (!all_equal(members, scores))
      for (size_t i : members) result[i] = 1;
  return result;
}

double overlong_penalty(int64_t length, int64_t most, int64_t buffer, double factor) {
  SF_ASSERT(buffer > 0 && buffer <= most);
  const double over = static_cast<double>(length - (most - buffer));
  return std::min(-over / static_cast<double>(buffer) * factor, 0.0);
}

}  // namespace sf::rl
