// SPDX-License-Identifier: Apache-2.0
// A decoder that learns from rewards; the last segment ends in the policy loss, or tells log-probabilities alone.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "arch/decoder.h"
#include "model/segment.h"
#include "rl/kl.h"
#include "rl/policy_loss.h"

namespace sf::model {

struct PolicyForm {
  rl::PolicyLoss loss = rl::PolicyLoss::kPpo;
  rl::Clip clip;
  double temperature = 1;  // logits are divided by it, in every pass
  std::optional<rl::KlLoss> kl = {};
};

// decoder_segments(decoder, adapters), the last one replaced. Sequence b is row b; its R labels in all, row by row:
//   "head": hidden.L, labels I64 [B,S] (the token that follows; below 0: none), old_log_probs, advantages, shares,
//           weights F64 [R] (rl::PolicyTokens; a token of share 0 is not there; weights may be empty: all 1;
//           old_log_probs may be: the policy's own, a ratio of 1)
//           -> loss F32 [], log_probs F32 [R], detached; sums F64 [7], detached: loss, tokens, clipped, clipped_lower,
//           sum of old - new, sum of entropies, sum of share * KL
// With form.kl every layer reads "adapters_off" I64 [1], and the head reads "reference" F64 [R]: the log-probabilities
// with the adapters off.
// With empty shares nothing is learned: log_probs alone mean something. Only rows with a label pass the final norm and
// the vocabulary, whose logits are fp32 and live for a block of rows; they are made twice where gradients are wanted,
// for the loss of a sequence may need all of its log-probabilities. Requires at least one label (kSoftware otherwise).
std::vector<Segment> grpo_segments(const arch::Decoder& decoder, std::span<const arch::Adapter> adapters,
                                   const PolicyForm& form);

}  // namespace sf::model
