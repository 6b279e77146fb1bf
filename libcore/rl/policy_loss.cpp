// SPDX-License-Identifier: Apache-2.0
#include "rl/policy_loss.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/fault.h"

namespace sf::rl {
namespace {

constexpr double kLongest = 20, kLongestOfSequence = 10;

struct TokenLoss {
  double loss = 0, gradient = 0;  // by the log-probability
  bool clipped = false, clipped_lower = false;
  double kl = 0;
};

// `slope`: d ratio / d log-probability.
TokenLoss clipped_loss(double advantage, double ratio, double slope, const Clip& clip, bool dual) {
  const double plain = -advantage * ratio;
  const double bounded = -advantage * std::clamp(ratio, 1 - clip.low, 1 + clip.high);
  TokenLoss token{.loss = plain, .gradient = -advantage * slope, .clipped = bounded > plain};
  if (token.clipped) token.loss = bounded, token.gradient = 0;
  const double most = -advantage * clip.dual;
  if (dual && advantage < 0 && token.loss > most && !fault("rl.no_dual_clip")) {
    token.loss = most;
    token.gradient = 0;
    token.clipped_lower = true;
  }
  return token;
}

TokenLoss ppo(double log_prob, double old, double advantage, const Clip& clip) {
  const double apart = log_prob - old, d = std::clamp(apart, -kLongest, kLongest), ratio = std::exp(d);
  TokenLoss token = clipped_loss(advantage, ratio, d == apart ? ratio : 0, clip, true);
  token.kl = -d;
  return token;
}

TokenLoss cispo(double log_prob, double old, double advantage, const Clip& clip) {
  const double d = std::clamp(log_prob - old, -kLongest, kLongest), ratio = std::exp(d);
  const double bounded = std::clamp(ratio, 1 - clip.low, 1 + clip.high);
  return {
      .loss = -advantage * bounded * log_prob, .gradient = -advantage * bounded, .clipped = bounded != ratio, .kl = -d};
}

// Mean of new - old over a sequence's mask.
double apart_of(const PolicyTokens& in, int64_t sequence) {
  double sum = 0, tokens = 0;
  for (auto t = static_cast<size_t>(in.rows.begin(sequence)); t < static_cast<size_t>(in.rows.end(sequence)); ++t) {
    if (!in.mask[t]) continue;
    sum += in.log_probs[t] - in.old_log_probs[t];
    ++tokens;
  }
  return sum / std::max(tokens, 1.0);
}

TokenLoss gspo(double apart, double advantage, const Clip& clip) {
  const double ratio = std::exp(std::min(apart, kLongestOfSequence));
  TokenLoss token = clipped_loss(advantage, ratio, apart <= kLongestOfSequence ? ratio : 0, clip, false);
  token.kl = -apart;
  return token;
}

TokenLoss one(PolicyLoss kind, const Clip& clip, const PolicyTokens& in, size_t t) {
  switch (kind) {
    case PolicyLoss::kCispo:
      return cispo(in.log_probs[t], in.old_log_probs[t], in.advantages[t], clip);
    case PolicyLoss::kGpg:
      return {.loss = -in.advantages[t] * in.log_probs[t],
              .gradient = -in.advantages[t],
              .kl = in.old_log_probs[t] - in.log_probs[t]};
    default:
      return ppo(in.log_probs[t], in.old_log_probs[t], in.advantages[t], clip);
  }
}

}  // namespace

PolicyLoss policy_loss_from_name(std::string_view name) {
  if (name == "ppo") return PolicyLoss::kPpo;
  if (name == "gspo") return PolicyLoss::kGspo;
  if (name == "cispo") return PolicyLoss::kCispo;
  SF_CHECK(name == "gpg", Exit::kConfig, "policy loss \"{}\": wanted ppo, gspo, cispo or gpg", name);
  return PolicyLoss::kGpg;
}

void check(const Clip& clip) {
  SF_CHECK(clip.low >= 0 && clip.low < 1 && clip.high >= 0, Exit::kConfig,
           "the ratio is clipped to [1 - {}, 1 + {}]: wanted a lower part from 0 to below 1 and an upper one from 0",
           clip.low, clip.high);
  SF_CHECK(clip.dual > 1, Exit::kConfig, "the dual clip is {}, wanted above 1", clip.dual);
}

PolicyResult policy_loss(PolicyLoss kind, const Clip& clip, const PolicyTokens& in) {
  const auto tokens = static_cast<size_t>(in.rows.tokens());
  SF_ASSERT(in.mask.size() == tokens && in.log_probs.size() == tokens && in.old_log_probs.size() == tokens);
  SF_ASSERT(in.advantages.size() == tokens && in.shares.size() == tokens);
  SF_ASSERT(in.weights.empty() || in.weights.size() == tokens);
  PolicyResult out{.gradient = std::vector<double>(tokens, 0)};
  for (int64_t s = 0; s < in.rows.count(); ++s) {
    const double apart = kind == PolicyLoss::kGspo ? apart_of(in, s) : 0;
    for (auto t = static_cast<size_t>(in.rows.begin(s)); t < static_cast<size_t>(in.rows.end(s)); ++t) {
      if (!in.mask[t]) continue;
      const TokenLoss token = kind == PolicyLoss::kGspo ? gspo(apart, in.advantages[t], clip) : one(kind, clip, in, t);
      const double factor = in.shares[t] * (in.weights.empty() ? 1 : in.weights[t]);
      out.loss += factor * token.loss;
      out.gradient[t] = factor * token.gradient;
      out.tokens += 1;
      out.clipped += token.clipped;
      out.clipped_lower += token.clipped_lower;
      out.kl += token.kl;
    }
  }
  return out;
}

double entropy(std::span<const float> logits) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0, moment = 0;
  for (float z : logits) {
    const double e = std::exp(z - most);
    sum += e;
    moment += e * (z - most);
  }
  return std::log(sum) - moment / sum;
}

}  // namespace sf::rl
