// SPDX-License-Identifier: Apache-2.0
// Responses as the boundaries that model::grpo_segments reads.
#pragma once
#include <span>

#include "model/segment.h"
#include "rl/balance.h"
#include "train/grpo.h"

namespace sf::train {

// One response, unpadded, for its log-probabilities alone: under the adapters, or with them off.
model::Tensors scoring_batch(const Response& response, bool adapted);

// Numbers of the answers' tokens of all responses, one behind the other.
struct TokenNumbers {
  const rl::Ragged& rows;
  rl::Numbers old_log_probs, advantages, shares, weights, reference;  // all but the second and third: or empty
};
// The responses of a part, padded behind to the longest: causal attention sees nothing of it.
model::Tensors learning_batch(std::span<const Response> responses, const rl::Part& part, const TokenNumbers& numbers);

}  // namespace sf::train
