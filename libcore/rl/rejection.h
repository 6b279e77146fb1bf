// SPDX-License-Identifier: Apache-2.0
// Which tokens and sequences are left out because sampler and learner differ too much on them. Source: rl_lora G-75.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "rl/correction.h"

namespace sf::rl {

// With d = old - rollout clamped to +-20: k1 = -d, k2 = d^2 / 2, k3 = e^d - 1 - d. A token, or a sequence by the sum,
// mean or most of its tokens, stays if k1 lies within [ln low, ln high], k2 or k3 is at most `high`.
struct Criterion {
  enum class Of { kToken, kSequenceSum, kSequenceMean, kSequenceMax } of = Of::kToken;
  int form = 1;  // 1, 2, 3
  double low = 0, high = 0;
};

// "token_k1,seq_mean_k3" with thresholds "2.0,0.01": as many as criteria, or one for all. A threshold of k1 is H for
// [1/H, H], or LOW_HIGH. kConfig for a name that is none (token_k*, seq_sum_k*, seq_mean_k*, seq_max_k2, seq_max_k3),
// and for thresholds that do not fit.
std::vector<Criterion> criteria(std::string_view names, std::string_view thresholds);

// The mask with what fails any criterion left out; `metrics`, if not null, gets rollout_corr/rollout_rs_* shares.
std::vector<uint8_t> surviving(const Gap& gap, const std::vector<Criterion>& criteria, Metrics* metrics = nullptr);

}  // namespace sf::rl
