// SPDX-License-Identifier: Apache-2.0
// Distance of the policy from a reference, a token at a time. Source: rl_lora G-34, G-35; Schulman, "Approximating KL
// divergence".
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "rl/policy_loss.h"
#include "rl/ragged.h"

namespace sf::rl {

// With x = reference - new: k1 = -x; abs = |x|; k2 = x^2 / 2; k3 = clamp(e^x - x - 1, +-10) of x clamped to +-20, whose
// gradient is 0 where a clamp holds.
enum class KlForm { kK1, kAbs, kK2, kK3 };

struct Kl {
  KlForm form = KlForm::kK3;
  bool straight_through = false;  // the value of `form`, the gradient of k2
};
// k1 (kl), abs, k2 (mse), k3 (low_var_kl); a "+" behind it: straight through. kConfig otherwise.
Kl kl_from_name(std::string_view name);

struct KlToken {
  double value = 0, gradient = 0;  // by the policy's log-probability
};
KlToken kl_of(const Kl& kl, double log_prob, double reference);

// Of the loss: coefficient times the sum of share * KL over tokens with a share is added to `to`, its gradient
// likewise. Returns that sum without the coefficient. `reference`: the log-probability of each token under the
// reference.
struct KlLoss {
  Kl kl;
  double coefficient = 0;
};
double add_kl(const KlLoss& loss, const PolicyTokens& tokens, Numbers reference, PolicyResult& to);

// Of the reward: score_t - beta kl_t on the mask, 0 elsewhere.
std::vector<double> with_kl(Numbers rewards, Numbers kl, Mask mask, double beta);

// beta moves towards a wanted distance: beta (1 + clip(kl / target - 1, +-0.2) n / horizon), n samples a step.
double adapted_beta(double beta, double kl, double target, double samples, double horizon);

}  // namespace sf::rl
