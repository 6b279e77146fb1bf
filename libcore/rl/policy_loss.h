// SPDX-License-Identifier: Apache-2.0
// The policy loss of each token and its gradient by the token's log-probability. Source: rl_lora 4.4.
#pragma once
#include <string_view>
#include <vector>

#include "rl/ragged.h"

namespace sf::rl {

// With d = clamp(new - old, +-20), r = e^d, A the advantage:
//   ppo     max(-A r, -A clip(r, 1 - low, 1 + high)), for A < 0 at most -A dual
//   gspo    the same without dual, of the ratio of a whole sequence: r = e^min(mean of new - old, 10); a token's
//           gradient is that of its own log-probability times this ratio
//   cispo   -A clip(r, 1 - low, 1 + high) new, the clipped ratio without gradient
//   gpg     -A new
// A clipped loss is a constant: its gradient is 0.
enum class PolicyLoss { kPpo, kGspo, kCispo, kGpg };
PolicyLoss policy_loss_from_name(std::string_view name);  // kConfig naming those there are

// Bounds of the ratio; DAPO's clip-higher is high > low. `dual` is above 1. kConfig otherwise.
struct Clip {
  double low = 0.2, high = 0.2, dual = 3;
};
void check(const Clip& clip);

// By token; nothing is read where the mask is 0.
struct PolicyTokens {
  const Ragged& rows;
  Mask mask;
  Numbers log_probs;      // of the policy that learns
  Numbers old_log_probs;  // of the policy that the ratio is over
  Numbers advantages;
  Numbers shares;        // token_shares()
  Numbers weights = {};  // of rollout correction, without gradient; empty: 1
};

struct PolicyResult {
  double loss = 0;               // sum of share * weight * loss
  std::vector<double> gradient;  // d loss / d log_probs, 0 outside of the mask
  // Over the tokens of the mask: their number, those where the clipped side counts, those that dual clip changed, and
  // the sum of old - new.
  double tokens = 0, clipped = 0, clipped_lower = 0, kl = 0;
};

PolicyResult policy_loss(PolicyLoss kind, const Clip& clip, const PolicyTokens& tokens);

// Of one row of logits: -sum p log p, in fp64.
double entropy(std::span<const float> logits);

}  // namespace sf::rl
