// SPDX-License-Identifier: Apache-2.0
#include "rl/metrics.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "rl/correction.h"

namespace sf::rl {
namespace {

void join(Metric& sum, const Metric& one) {
  SF_CHECK(sum.kind == one.kind, Exit::kSoftware, "metric {} is reduced in two ways", one.name);
  switch (sum.kind) {
    case Reduction::kMean:
    case Reduction::kSum:
      sum.value += one.value;
      break;
    case Reduction::kMax:
      sum.value = std::max(sum.value, one.value);
      break;
    case Reduction::kMin:
      sum.value = std::min(sum.value, one.value);
      break;
  }
}

double correlation(Numbers a, Numbers b) {
  const double mean_a = spread_of(a).mean, mean_b = spread_of(b).mean;
  double both = 0, of_a = 0, of_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    both += (a[i] - mean_a) * (b[i] - mean_b);
    of_a += (a[i] - mean_a) * (a[i] - mean_a);
    of_b += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return both / std::sqrt(of_a * of_b);  // no number where one does not vary
}

struct Probabilities {
  std::vector<double> old, rollout, apart, log_ratio;
};

Probabilities probabilities(const Gap& gap) {
  Probabilities p;
  for (size_t t = 0; t < gap.mask.size(); ++t) {
    if (!gap.mask[t]) continue;
    p.old.push_back(std::exp(gap.old_log_probs[t]));
    p.rollout.push_back(std::exp(gap.rollout_log_probs[t]));
    p.apart.push_back(std::abs(p.old.back() - p.rollout.back()));
    p.log_ratio.push_back(gap.old_log_probs[t] - gap.rollout_log_probs[t]);
  }
  return p;
}

// Means of both log-probabilities of each sequence that has a token, and its sum of log ratios.
struct BySequence {
  std::vector<double> old, rollout, sum;
};

BySequence by_sequence(const Gap& gap) {
  BySequence result;
  for (int64_t s = 0; s < gap.rows.count(); ++s) {
    double old = 0, rollout = 0, tokens = 0;
    for (auto t = static_cast<size_t>(gap.rows.begin(s)); t < static_cast<size_t>(gap.rows.end(s)); ++t) {
      if (!gap.mask[t]) continue;
      old += gap.old_log_probs[t];
      rollout += gap.rollout_log_probs[t];
      ++tokens;
    }
    if (tokens == 0) continue;
    result.old.push_back(old / tokens);
    result.rollout.push_back(rollout / tokens);
    result.sum.push_back(old - rollout);
  }
  return result;
}

template <typename Of>
double mean_over(Numbers values, const Of& of) {
  double sum = 0;
  for (double value : values) sum += of(value);
  return sum / static_cast<double>(values.size());
}

double chi2(double log_ratio) {
  return std::exp(2 * std::clamp(log_ratio, -20.0, 20.0)) - 1;
}

void add_perplexities(Metrics& to, const BySequence& each) {
  auto exp_minus = [](double x) { return std::exp(-x); };
  auto minus = [](double x) { return -x; };
  std::vector<double> apart;
  for (size_t s = 0; s < each.old.size(); ++s) apart.push_back(each.rollout[s] - each.old[s]);
  const Spread spread = spread_of(apart);
  auto say = [&](const char* name, double value, Reduction kind = Reduction::kMean) {
    to.push_back({std::string("rollout_corr/") + name, value, kind});
  };
  say("training_ppl", mean_over(each.old, exp_minus));
  say("training_log_ppl", mean_over(each.old, minus));
  say("rollout_ppl", mean_over(each.rollout, exp_minus));
  say("rollout_log_ppl", mean_over(each.rollout, minus));
  say("log_ppl_diff", spread.mean);
  say("log_ppl_abs_diff", mean_over(apart, [](double x) { return std::abs(x); }));
  say("log_ppl_diff_max", spread.max, Reduction::kMax);
  say("log_ppl_diff_min", spread.min, Reduction::kMin);
  say("ppl_ratio", mean_over(apart, [](double x) { return std::exp(x); }));
  say("chi2_seq", mean_over(each.sum, chi2));
}

}  // namespace

Metrics reduced(const Metrics& metrics) {
  Metrics result;
  std::vector<double> counts;
  for (const Metric& one : metrics) {
    auto found = std::ranges::find(result, one.name, &Metric::name);
    if (found == result.end()) {
      result.push_back(one);
      counts.push_back(1);
      continue;
    }
    join(*found, one);
    ++counts[static_cast<size_t>(found - result.begin())];
  }
  for (size_t i = 0; i < result.size(); ++i)
    if (result[i].kind == Reduction::kMean) result[i].value /= counts[i];
  return result;
}

Spread spread_of(Numbers values) {
  SF_ASSERT(!values.empty());
  Spread spread{.max = values[0], .min = values[0]};
  double sum = 0, squares = 0;
  for (double value : values) {
    sum += value;
    spread.max = std::max(spread.max, value);
    spread.min = std::min(spread.min, value);
  }
  const double n = static_cast<double>(values.size());
  spread.mean = sum / n;
  for (double value : values) squares += (value - spread.mean) * (value - spread.mean);
  if (values.size() > 1) spread.deviation = std::sqrt(squares / (n - 1));
  return spread;
}

Metrics mismatch(const Gap& gap) {
  const Probabilities p = probabilities(gap);
  Metrics result{{"training/rollout_probs_diff_valid", p.old.empty() ? 0.0 : 1.0, Reduction::kMin}};
  if (p.old.empty()) return result;
  const Spread apart = spread_of(p.apart);
  result.push_back({"training/rollout_probs_diff_mean", apart.mean, Reduction::kMean});
  result.push_back({"training/rollout_probs_diff_max", apart.max, Reduction::kMax});
  result.push_back({"training/rollout_probs_diff_std", apart.deviation, Reduction::kMean});
  if (const double r = correlation(p.old, p.rollout); std::isfinite(r))
    result.push_back({"training/rollout_actor_probs_pearson_corr", r, Reduction::kMean});
  result.push_back({"rollout_corr/kl", mean_over(p.log_ratio, [](double d) { return -d; }), Reduction::kMean});
  result.push_back(
      {"rollout_corr/k3_kl", mean_over(p.log_ratio, [](double d) { return std::exp(d) - d - 1; }), Reduction::kMean});
  result.push_back({"rollout_corr/chi2_token", mean_over(p.log_ratio, chi2), Reduction::kMean});
  add_perplexities(result, by_sequence(gap));
  return result;
}

void add_spread(Metrics& to, const std::string& name, Numbers values) {
  if (values.empty()) return;
  const Spread spread = spread_of(values);
  to.push_back({name + "/mean", spread.mean, Reduction::kMean});
  to.push_back({name + "/max", spread.max, Reduction::kMax});
  to.push_back({name + "/min", spread.min, Reduction::kMin});
}

void add_lengths(Metrics& to, const std::string& name, Numbers lengths, double most) {
  if (lengths.empty()) return;
  add_spread(to, name, lengths);
  to.push_back(
      {name + "/clip_ratio", mean_over(lengths, [&](double n) { return n >= most ? 1.0 : 0.0; }), Reduction::kMean});
}

}  // namespace sf::rl
