// SPDX-License-Identifier: Apache-2.0
#include "rl/rejection.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/fault.h"

namespace sf::rl {
namespace {

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Criterion named(std::string_view name) {
  using Of = Criterion::Of;
  Criterion criterion;
  const size_t k = name.rfind("_k");
  const std::string_view of = name.substr(0, k), form = k == std::string_view::npos ? "" : name.substr(k + 2);
  const bool known = form == "1" || form == "2" || form == "3";
  if (known) criterion.form = form[0] - '0';
  if (known && of == "token") {
    criterion.of = Of::kToken;
  } else if (known && of == "seq_sum") {
    criterion.of = Of::kSequenceSum;
  } else if (known && of == "seq_mean") {
    criterion.of = Of::kSequenceMean;
  } else {
    SF_CHECK(known && of == "seq_max" && form != "1", Exit::kConfig,
             "wanted token_k, seq_sum_k or seq_mean_k with 1, 2 or 3 behind it, seq_max_k2 or seq_max_k3, found \"{}\"",
             name);
    criterion.of = Of::kSequenceMax;
  }
  return criterion;
}

void bound(Criterion& criterion, std::string_view threshold) {
  const CorrectionBounds bounds = correction_bounds(threshold);
  SF_CHECK(criterion.form == 1 || !bounds.zeroes, Exit::kConfig, "wanted one number for k2 and k3, found \"{}\"",
           threshold);
  criterion.low = criterion.form == 1 ? std::log(bounds.zeroes ? bounds.low : 1 / bounds.high) : -INFINITY;
  criterion.high = criterion.form == 1 ? std::log(bounds.high) : bounds.high;
  SF_CHECK(criterion.low <= criterion.high, Exit::kConfig,
           "wanted 1 or more as one number for k1, found \"{}\", which leaves nothing", threshold);
}

double value_of(int form, double old, double rollout) {
  const double d = std::clamp(old - rollout, -20.0, 20.0);
  if (form == 1) return -d;
  return form == 2 ? d * d / 2 : std::exp(d) - 1 - d;
}

bool stays(const Criterion& criterion, double value) {
  return value >= criterion.low && value <= criterion.high;
}

// What the tokens' values come to for a whole sequence; undefined without a token.
double joined(const Gap& gap, const Criterion& criterion, int64_t sequence) {
  double sum = 0, most = -INFINITY, tokens = 0;
  for (auto t = static_cast<size_t>(gap.rows.begin(sequence)); t < static_cast<size_t>(gap.rows.end(sequence)); ++t) {
    if (!gap.mask[t]) continue;
    const double value = value_of(criterion.form, gap.old_log_probs[t], gap.rollout_log_probs[t]);
    sum += value;
    most = std::max(most, value);
    ++tokens;
  }
  if (criterion.of == Criterion::Of::kSequenceMax) return most;
  return criterion.of == Criterion::Of::kSequenceMean ? sum / tokens : sum;
}

void apply(const Gap& gap, const Criterion& criterion, int64_t sequence, std::vector<uint8_t>& keep) {
  const auto begin = static_cast<size_t>(gap.rows.begin(sequence)), end = static_cast<size_t>(gap.rows.end(sequence));
  const bool whole = criterion.of != Criterion::Of::kToken;
  const bool sequence_stays = !whole || stays(criterion, joined(gap, criterion, sequence));
  for (size_t t = begin; t < end; ++t) {
    if (!gap.mask[t]) continue;
    const bool token_stays =
        whole || stays(criterion, value_of(criterion.form, gap.old_log_probs[t], gap.rollout_log_probs[t]));
    if (!sequence_stays || !token_stays) keep[t] = 0;
  }
}

}  // namespace

std::vector<Criterion> criteria(std::string_view names, std::string_view thresholds) {
  const std::vector<std::string_view> name = split(names), threshold = split(thresholds);
  SF_CHECK(threshold.size() == 1 || threshold.size() == name.size(), Exit::kConfig,
           "wanted one number, or one for each of {} criteria, found {} in \"{}\"", name.size(), threshold.size(),
           thresholds);
  std::vector<Criterion> result;
  for (size_t i = 0; i < name.size(); ++i) {
    result.push_back(named(name[i]));
    bound(result.back(), threshold[threshold.size() == 1 ? 0 : i]);
  }
  return result;
}

std::vector<uint8_t> surviving(const Gap& gap, const std::vector<Criterion>& criteria, Metrics* metrics) {
  std::vector<uint8_t> keep(gap.mask.begin(), gap.mask.end());
  for (const Criterion& criterion : criteria)
    for (int64_t s = 0; s < gap.rows.count(); ++s)
      if (!fault("rl.rejects_nothing")) apply(gap, criterion, s, keep);
  double tokens = 0, gone = 0, sequences = 0, hit = 0;
  for (int64_t s = 0; s < gap.rows.count(); ++s) {
    double own = 0, lost = 0;
    for (auto t = static_cast<size_t>(gap.rows.begin(s)); t < static_cast<size_t>(gap.rows.end(s)); ++t) {
      own += gap.mask[t] != 0;
      lost += gap.mask[t] && !keep[t];
    }
    tokens += own, gone += lost;
    sequences += own > 0, hit += lost > 0;
  }
  if (!metrics || tokens == 0) return keep;
  metrics->push_back({"rollout_corr/rollout_rs_masked_fraction", gone / tokens, Reduction::kMean});
  metrics->push_back({"rollout_corr/rollout_rs_seq_masked_fraction", hit / sequences, Reduction::kMean});
  return keep;
}

}  // namespace sf::rl
