// SPDX-License-Identifier: Apache-2.0
// Weights for the gap between the policy that answered and the one that learns. Source: rl_lora 4.8. With d the log of
// the ratio, log-probability under the learner's old policy minus that under the sampler's.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "rl/metrics.h"
#include "rl/ragged.h"

namespace sf::rl {

// token: w = e^clamp(d, +-20); sequence: w = e^clamp(sum of d, +-20) for all of a sequence's tokens.
enum class CorrectionLevel { kToken, kSequence };

// "2.0": w is cut to 2 (truncated importance sampling). "0.5_5.0": w outside is 0 (IcePop). "": no weights.
struct CorrectionBounds {
  double low = 0, high = 2;
  bool zeroes = false;  // outside; else cut to `high`
};
// kConfig: no number, not positive, low above high.
CorrectionBounds correction_bounds(std::string_view text);

struct CorrectionOptions {
  CorrectionLevel level = CorrectionLevel::kToken;
  CorrectionBounds bounds;
  bool normalised = false;  // over their mean, unless that is below 1e-8
};

// The two log-probabilities of every token.
struct Gap {
  const Ragged& rows;
  Mask mask;
  Numbers old_log_probs, rollout_log_probs;
};

// By token, 0 outside of the mask. `metrics`, if not null, gets rollout_corr/rollout_is_*: mean, max, min and std of
// the weights before they were bounded, the share of them above and below the bounds (or 1 / high), what was zeroed,
// the effective sample size of those in use, and the same of sequences' means.
std::vector<double> correction_weights(const Gap& gap, const CorrectionOptions& options, Metrics* metrics = nullptr);

}  // namespace sf::rl
