// SPDX-License-Identifier: Apache-2.0
#include "score/statistics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/fault.h"
#include "base/rng.h"

namespace sf::score {
namespace {

constexpr int64_t kMostWork = 50'000'000;  // additions an exact sign-flip test may cost

// Fewer draws for many questions, where each draw says more; bounds the work.
int64_t bootstrap_draws(size_t questions) {
  return std::clamp<int64_t>(10'000'000 / static_cast<int64_t>(questions), 1'000, 10'000);
}
int64_t flip_draws(size_t questions) {
  return std::clamp<int64_t>(100'000'000 / static_cast<int64_t>(questions), 10'000, 100'000);
}

// C(n, k), or kMostSubsets + 1 if it is larger.
int64_t subsets(int64_t n, int64_t k) {
  double count = 1;
  for (int64_t i = 1; i <= k && count <= static_cast<double>(kMostSubsets); ++i)
    count = count * static_cast<double>(n - k + i) / static_cast<double>(i);
  return count > static_cast<double>(kMostSubsets) ? kMostSubsets + 1 : std::llround(count);
}

// The next subset of 0..n-1 in lexicographic order; false after the last.
bool next_subset(std::vector<size_t>& chosen, size_t n) {
  size_t k = chosen.size();
  for (size_t i = k; i-- > 0;) {
    if (chosen[i] == n - k + i) continue;
    ++chosen[i];
    for (size_t j = i + 1; j < k; ++j) chosen[j] = chosen[j - 1] + 1;
    return true;
  }
  return false;
}

// A sum of shares over one denominator, so that no share is rounded before the sum is whole.
struct Share {
  int64_t above = 0, below = 1;
  bool add(int64_t c, int64_t n) {  // false: left as it was, because the denominator would not fit
    const int64_t divisor = std::gcd(below, n);
    int64_t all = 0, mine = 0, theirs = 0, together = 0;
    if (__builtin_mul_overflow(below, n / divisor, &all) || __builtin_mul_overflow(above, n / divisor, &mine) ||
        __builtin_mul_overflow(c, below / divisor, &theirs) || __builtin_add_overflow(mine, theirs, &together))
      return false;
    above = together, below = all;
    return true;
  }
  // The share of one of `count`, rounded once.
  double over(int64_t count) const {
    const auto whole = static_cast<__int128>(below) * count;
    __int128 divisor = whole, rest = above;
    while (rest != 0) divisor = std::exchange(rest, divisor % rest);
    return static_cast<double>(static_cast<long double>(above / divisor) / static_cast<long double>(whole / divisor));
  }
};

double majority_of(const std::vector<Vote>& votes, const std::vector<size_t>& chosen) {
  std::vector<Vote> some;
  for (size_t i : chosen) some.push_back(votes[i]);
  return majority(some);
}

// Share of all sign flips of `weights` whose sum is at least |observed|, by counting the ways to each sum.
double exact_flips(const std::vector<int64_t>& weights, int64_t observed) {
  int64_t total = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  std::vector<double> share(static_cast<size_t>(2 * total + 1), 0.0), next;
  share[static_cast<size_t>(total)] = 1;
  int64_t reach = 0;
  for (int64_t weight : weights) {
    next.assign(share.size(), 0.0);
    for (int64_t sum = -reach; sum <= reach; ++sum) {
      double half = 0.5 * share[static_cast<size_t>(total + sum)];
      next[static_cast<size_t>(total + sum + weight)] += half;
      next[static_cast<size_t>(total + sum - weight)] += half;
    }
    reach += weight;
    share.swap(next);
  }
  double p = 0;
  for (int64_t sum = -total; sum <= total; ++sum)
    if (std::abs(sum) >= std::abs(observed)) p += share[static_cast<size_t>(total + sum)];
  return std::min(1.0, p);
}

double sampled_flips(const std::vector<int64_t>& weights, int64_t observed, uint64_t seed) {
  Rng rng(seed, "score.flips");
  int64_t draws = flip_draws(weights.size());
  int64_t extreme = 0;
  for (int64_t draw = 0; draw < draws; ++draw) {
    int64_t sum = 0;
    uint64_t bits = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (i % 64 == 0) bits = rng.bits(static_cast<uint64_t>(draw), i / 64);
      sum += (bits >> (i % 64)) & 1 ? weights[i] : -weights[i];
    }
    extreme += std::abs(sum) >= std::abs(observed);
  }
  return static_cast<double>(extreme + 1) / static_cast<double>(draws + 1);
}

}  // namespace

Interval wilson(double successes, double trials) {
  if (trials <= 0) return {};
  double p = successes / trials, z2 = kZ95 * kZ95;
  double centre = p + z2 / (2 * trials), spread = kZ95 * std::sqrt(p * (1 - p) / trials + z2 / (4 * trials * trials));
  double scale = 1 + z2 / trials;
  return {std::max(0.0, (centre - spread) / scale), std::min(1.0, (centre + spread) / scale)};
}

double pass_at(const Tally& tally, int64_t k) {
  SF_ASSERT(k >= 1 && k <= tally.n);
  if (tally.n - tally.c < k) return 1;
  double none = 1;
  for (int64_t i = tally.n - tally.c + 1; i <= tally.n; ++i)
    none *= 1 - static_cast<double>(k) / static_cast<double>(i);
  return 1 - none;
}

double mean_rate(const std::vector<Tally>& tallies) {
  if (tallies.empty()) return 0;
  std::map<int64_t, int64_t> correct;  // by the number of answers
  for (const Tally& tally : tallies) correct[tally.n] += tally.c;
  Share sum;
  long double loose = 0;  // where no common denominator is small enough
  for (const auto& [n, c] : correct) {
    if (!sum.add(c, n)) loose += static_cast<long double>(c) / static_cast<long double>(n);
  }
  const auto questions = static_cast<int64_t>(tallies.size());
  if (loose == 0) return sum.over(questions);
  long double total = static_cast<long double>(sum.above) / static_cast<long double>(sum.below) + loose;
  return static_cast<double>(total / static_cast<long double>(questions));
}

double clustered_error(const std::vector<Tally>& tallies) {
  if (tallies.size() < 2) return 0;
  double centre = mean_rate(tallies), sum = 0, count = static_cast<double>(tallies.size());
  for (const Tally& tally : tallies) sum += (tally.rate() - centre) * (tally.rate() - centre);
  return std::sqrt(sum / (count - 1) / count);
}

double within_error(const std::vector<Tally>& tallies) {
  double sum = 0, count = static_cast<double>(tallies.size());
  for (const Tally& tally : tallies)
    if (tally.n > 1) sum += tally.rate() * (1 - tally.rate()) / static_cast<double>(tally.n - 1);
  return tallies.empty() ? 0 : std::sqrt(sum) / count;
}

Interval mean_interval(const std::vector<Tally>& tallies) {
  double questions = static_cast<double>(tallies.size()), answers = 0;
  for (const Tally& tally : tallies) answers += static_cast<double>(tally.n);
  double rate = mean_rate(tallies), error = clustered_error(tallies);
  if (answers == questions || fault("score.answers_independent")) return wilson(rate * answers, answers);
  double spread = rate * (1 - rate);  // 0: all right or all wrong, which says nothing of how they vary
  double effective = spread > 0 && tallies.size() > 1 ? spread / std::max(error * error, 1e-300) : questions;
  effective = std::clamp(effective, questions, answers);
  return wilson(rate * effective, effective);
}

Interval bootstrap_interval(const std::vector<double>& values, int64_t draws, uint64_t seed) {
  if (values.empty()) return {0, 0};
  Rng rng(seed, "score.bootstrap");
  std::vector<double> means(static_cast<size_t>(draws));
  for (size_t draw = 0; draw < means.size(); ++draw) {
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) sum += values[rng.below(values.size(), draw, i)];
    means[draw] = sum / static_cast<double>(values.size());
  }
  std::sort(means.begin(), means.end());
  auto at = [&](double share) {
    return means[static_cast<size_t>(share * static_cast<double>(means.size() - 1) + 0.5)];
  };
  return {at(0.025), at(0.975)};
}

double majority(const std::vector<Vote>& votes) {
  std::map<std::string_view, std::pair<int64_t, bool>> count;
  int64_t most = 0;
  for (const Vote& vote : votes) {
    if (vote.form.empty()) continue;
    auto& entry = count[vote.form];
    entry.second = entry.second || vote.correct;
    most = std::max(most, ++entry.first);
  }
  int64_t winners = 0, right = 0;
  for (const auto& [form, entry] : count) {
    if (entry.first != most) continue;
    ++winners;
    right += entry.second;
  }
  return winners == 0 ? 0 : static_cast<double>(right) / static_cast<double>(winners);
}

double majority_at(const std::vector<Vote>& votes, int64_t k, uint64_t seed, int64_t most) {
  size_t n = votes.size(), take = static_cast<size_t>(k);
  SF_ASSERT(k >= 1 && take <= n && most >= 1 && most <= kMostSubsets);
  std::vector<size_t> chosen(take);
  std::iota(chosen.begin(), chosen.end(), size_t{0});
  double sum = 0;
  if (subsets(static_cast<int64_t>(n), k) <= most) {
    int64_t count = 0;
    do {
      sum += majority_of(votes, chosen);
      ++count;
    } while (next_subset(chosen, n));
    return sum / static_cast<double>(count);
  }
  Rng rng(seed, "score.majority");
  std::vector<size_t> order(n);
  for (int64_t draw = 0; draw < most; ++draw) {
    std::iota(order.begin(), order.end(), size_t{0});
    for (size_t i = 0; i < take; ++i) std::swap(order[i], order[i + rng.below(n - i, static_cast<uint64_t>(draw), i)]);
    sum += majority_of(votes, {order.begin(), order.begin() + k});
  }
  return sum / static_cast<double>(most);
}

Paired paired_test(const std::vector<Tally>& a, const std::vector<Tally>& b, uint64_t seed) {
  SF_ASSERT(a.size() == b.size() && !a.empty());
  int64_t scale = 1;  // common multiple of all n, so that differences are whole numbers
  for (const auto* tallies : {&a, &b})
    for (const Tally& tally : *tallies) scale = std::lcm(scale, tally.n) > 1'000'000 ? scale : std::lcm(scale, tally.n);
  Paired result;
  std::vector<double> differences;
  std::vector<int64_t> weights;
  int64_t observed = 0, total = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    differences.push_back(b[i].rate() - a[i].rate());
    int64_t weight = std::llround(differences.back() * static_cast<double>(scale));
    weight > 0 ? ++result.up : weight < 0 ? ++result.down : ++result.equal;
    observed += weight;
    total += std::abs(weight);
    if (weight != 0) weights.push_back(std::abs(weight));
  }
  result.difference = mean_rate(b) - mean_rate(a);
  result.interval = bootstrap_interval(differences, bootstrap_draws(a.size()), seed);
  result.exact = total * static_cast<int64_t>(weights.size() + 1) <= kMostWork;
  result.p = result.exact ? exact_flips(weights, observed) : sampled_flips(weights, observed, seed);
  return result;
}

std::vector<double> holm(const std::vector<double>& p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) { return p[i] < p[j]; });
  std::vector<double> adjusted(p.size());
  double floor = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    floor = std::max(floor, std::min(1.0, p[order[rank]] * static_cast<double>(p.size() - rank)));
    adjusted[order[rank]] = fault("score.no_multiplicity") ? p[order[rank]] : floor;
  }
  return adjusted;
}

Gain gain_of(const Reading& before, const Reading& after) {
  return {(after.format() - before.format()) * (before.correctness() + after.correctness()) / 2,
          (after.correctness() - before.correctness()) * (before.format() + after.format()) / 2};
}

double accuracy_of_reward(double reward) {
  return (reward + 1) / 2;
}
double reward_of_accuracy(double accuracy) {
  return 2 * accuracy - 1;
}

}  // namespace sf::score
