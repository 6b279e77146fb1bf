// SPDX-License-Identifier: Apache-2.0
#include "rl/correction.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace sf::rl {
namespace {

constexpr double kLongest = 20;

double number_in(std::string_view text, std::string_view whole) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  SF_CHECK(error == std::errc() && end == text.data() + text.size() && std::isfinite(value) && value > 0, Exit::kConfig,
           "wanted a positive number, or LOW_HIGH, found \"{}\"", whole);
  return value;
}

std::vector<double> raw_weights(const Gap& gap, CorrectionLevel level) {
  std::vector<double> raw(gap.mask.size(), 0);
  for (int64_t s = 0; s < gap.rows.count(); ++s) {
    double sum = 0;
    const auto begin = static_cast<size_t>(gap.rows.begin(s)), end = static_cast<size_t>(gap.rows.end(s));
    for (size_t t = begin; t < end; ++t)
      if (gap.mask[t]) sum += gap.old_log_probs[t] - gap.rollout_log_probs[t];
    for (size_t t = begin; t < end; ++t) {
      if (!gap.mask[t]) continue;
      const double d = level == CorrectionLevel::kSequence ? sum : gap.old_log_probs[t] - gap.rollout_log_probs[t];
      raw[t] = std::exp(std::clamp(d, -kLongest, kLongest));
    }
  }
  return raw;
}

std::vector<double> on_mask(Numbers values, Mask mask) {
  std::vector<double> result;
  for (size_t t = 0; t < mask.size(); ++t)
    if (mask[t]) result.push_back(values[t]);
  return result;
}

// One mean a sequence that has a token.
std::vector<double> means_of(const Gap& gap, Numbers values) {
  std::vector<double> result;
  for (int64_t s = 0; s < gap.rows.count(); ++s) {
    const std::vector<double> own = on_mask(gap.rows.of(values, s), gap.rows.of(gap.mask, s));
    if (!own.empty()) result.push_back(spread_of(own).mean);
  }
  return result;
}

double share(const std::vector<double>& values, auto&& test) {
  return static_cast<double>(std::ranges::count_if(values, test)) / static_cast<double>(values.size());
}

double effective(const std::vector<double>& weights) {
  const double mean = spread_of(weights).mean;
  if (!(mean > 1e-8)) return 0;
  double squares = 0;
  for (double w : weights) squares += (w / mean) * (w / mean);
  return static_cast<double>(weights.size()) / squares;
}

void report(const Gap& gap, const CorrectionBounds& bounds, Numbers raw, Numbers used, Metrics& metrics) {
  const std::vector<double> weights = on_mask(raw, gap.mask), sequences = means_of(gap, raw);
  if (weights.empty()) return;
  const double low = bounds.zeroes ? bounds.low : 1 / bounds.high;
  auto above = [&](double w) { return w > bounds.high; };
  auto below = [&](double w) { return w < low; };
  auto say = [&](const char* name, double value, Reduction kind = Reduction::kMean) {
    metrics.push_back({std::string("rollout_corr/rollout_is_") + name, value, kind});
  };
  const Spread all = spread_of(weights), by_sequence = spread_of(sequences);
  say("mean", all.mean);
  say("max", all.max, Reduction::kMax);
  say("min", all.min, Reduction::kMin);
  say("std", all.deviation);
  say("ratio_fraction_high", share(weights, above));
  say("ratio_fraction_low", share(weights, below));
  if (bounds.zeroes) say("oob_ratio", share(weights, [&](double w) { return above(w) || below(w); }));
  say("eff_sample_size", effective(on_mask(used, gap.mask)));
  say("seq_mean", by_sequence.mean);
  say("seq_std", by_sequence.deviation);
  say("seq_max", by_sequence.max, Reduction::kMax);
  say("seq_min", by_sequence.min, Reduction::kMin);
  double apart = 0;
  for (double w : sequences) apart = std::max(apart, std::abs(w - 1));
  say("seq_max_deviation", apart, Reduction::kMax);
  say("seq_fraction_high", share(sequences, above));
  say("seq_fraction_low", share(sequences, below));
}

void normalise(const Gap& gap, CorrectionLevel level, std::vector<double>& weights) {
  const std::vector<double> each =
      level == CorrectionLevel::kToken ? on_mask(weights, gap.mask) : means_of(gap, weights);
  if (each.empty()) return;
  const double mean = spread_of(each).mean;
  if (mean <= 1e-8) return;
  for (double& w : weights) w /= mean;
}

}  // namespace

CorrectionBounds correction_bounds(std::string_view text) {
  const size_t bar = text.find('_');
  if (bar == std::string_view::npos) return {.high = number_in(text, text)};
  CorrectionBounds bounds{number_in(text.substr(0, bar), text), number_in(text.substr(bar + 1), text), true};
  SF_CHECK(bounds.low <= bounds.high, Exit::kConfig, "wanted LOW_HIGH, the lower one first, found \"{}\"", text);
  return bounds;
}

std::vector<double> correction_weights(const Gap& gap, const CorrectionOptions& options, Metrics* metrics) {
  SF_ASSERT(gap.old_log_probs.size() == gap.mask.size() && gap.rollout_log_probs.size() == gap.mask.size());
  const std::vector<double> raw = raw_weights(gap, options.level);
  std::vector<double> used = raw;
  const CorrectionBounds& bounds = options.bounds;
  for (double& w : used) w = bounds.zeroes ? (w < bounds.low || w > bounds.high ? 0 : w) : std::min(w, bounds.high);
  if (options.normalised) normalise(gap, options.level, used);
  if (metrics) report(gap, bounds, raw, used, *metrics);
  return used;
}

}  // namespace sf::rl
