// SPDX-License-Identifier: Apache-2.0
#include "rl/aggregate.h"

#include <algorithm>

#include "base/error.h"

namespace sf::rl {
namespace {

double tokens_of(Mask mask) {
  return static_cast<double>(mask.size() - static_cast<size_t>(std::ranges::count(mask, 0)));
}

double share_of(double tokens, Aggregation mode, const Denominators& by) {
  switch (mode) {
    case Aggregation::kTokenMean:
      return 1 / by.tokens;
    case Aggregation::kTokenSum:
      return 1;
    case Aggregation::kSeqMeanTokenSum:
      return 1 / by.sequences;
    case Aggregation::kSeqMeanTokenSumNorm:
      return 1 / by.sequences / by.factor;
    case Aggregation::kSeqMeanTokenMean:
      return 1 / (tokens + 1e-8) / by.sequences;
  }
  return 0;
}

}  // namespace

Aggregation aggregation_from_name(std::string_view name) {
  if (name == "token-mean") return Aggregation::kTokenMean;
  if (name == "token-sum") return Aggregation::kTokenSum;
  if (name == "seq-mean-token-sum") return Aggregation::kSeqMeanTokenSum;
  if (name == "seq-mean-token-sum-norm") return Aggregation::kSeqMeanTokenSumNorm;
  SF_CHECK(name == "seq-mean-token-mean", Exit::kConfig,
           "aggregation \"{}\": wanted token-mean, token-sum, seq-mean-token-sum, seq-mean-token-sum-norm or "
           "seq-mean-token-mean",
           name);
  return Aggregation::kSeqMeanTokenMean;
}

Denominators local_denominators(const Ragged& rows, Mask mask) {
  Denominators by{.factor = 0};
  for (int64_t s = 0; s < rows.count(); ++s) {
    const double tokens = tokens_of(rows.of(mask, s));
    by.tokens += tokens;
    by.sequences += tokens > 0;
    by.factor = std::max(by.factor, static_cast<double>(rows.length(s)));
  }
  return by;
}

std::vector<double> token_shares(const Ragged& rows, Mask mask, Aggregation mode, const Denominators& by) {
  SF_ASSERT(rows.tokens() == std::ssize(mask));
  SF_ASSERT(mode != Aggregation::kTokenMean || by.tokens > 0);
  SF_ASSERT(mode == Aggregation::kTokenMean || mode == Aggregation::kTokenSum || by.sequences > 0);
  SF_ASSERT(mode != Aggregation::kSeqMeanTokenSumNorm || by.factor > 0);
  std::vector<double> shares(mask.size(), 0);
  for (int64_t s = 0; s < rows.count(); ++s) {
    const double share = share_of(tokens_of(rows.of(mask, s)), mode, by);
    for (int64_t t = rows.begin(s); t < rows.end(s); ++t)
      if (mask[static_cast<size_t>(t)]) shares[static_cast<size_t>(t)] = share;
  }
  return shares;
}

double weighted_sum(Numbers values, Numbers shares) {
  double sum = 0;
  for (size_t t = 0; t < shares.size(); ++t)
    if (shares[t] != 0) sum += shares[t] * values[t];
  return sum;
}

double masked_mean(Numbers values, Mask mask) {
  double sum = 0, tokens = 0;
  for (size_t t = 0; t < mask.size(); ++t) {
    if (!mask[t]) continue;
    sum += values[t];
    ++tokens;
  }
  return sum / (tokens + 1e-8);
}

}  // namespace sf::rl
