// SPDX-License-Identifier: Apache-2.0
#include "rl/kl.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace sf::rl {
namespace {

KlToken k3(double x) {
  constexpr double kLongest = 20, kMost = 10;
  const double bounded = std::clamp(x, -kLongest, kLongest), value = std::exp(bounded) - bounded - 1;
  KlToken token{std::clamp(value, -kMost, kMost), 0};
  if (bounded == x && value >= -kMost && value <= kMost) token.gradient = 1 - std::exp(x);
  return token;
}

}  // namespace

Kl kl_from_name(std::string_view name) {
  Kl kl;
  std::string_view form = name;
  if (form.ends_with('+')) form.remove_suffix(1), kl.straight_through = true;
  if (form == "k1" || form == "kl") {
    kl.form = KlForm::kK1;
  } else if (form == "abs") {
    kl.form = KlForm::kAbs;
  } else if (form == "k2" || form == "mse") {
    kl.form = KlForm::kK2;
  } else {
    SF_CHECK(form == "k3" || form == "low_var_kl", Exit::kConfig,
             "wanted k1, abs, k2 or k3, with a + behind it for the gradient of k2, found \"{}\"", name);
  }
  return kl;
}

KlToken kl_of(const Kl& kl, double log_prob, double reference) {
  const double x = reference - log_prob;
  KlToken token;
  switch (kl.form) {
    case KlForm::kK1:
      token = {-x, 1};
      break;
    case KlForm::kAbs:
      token = {std::abs(x), x > 0 ? -1.0 : x < 0 ? 1.0 : 0.0};
      break;
    case KlForm::kK2:
      token = {x * x / 2, -x};
      break;
    case KlForm::kK3:
      token = k3(x);
      break;
  }
  if (kl.straight_through) token.gradient = -x;
  return token;
}

double add_kl(const KlLoss& loss, const PolicyTokens& in, Numbers reference, PolicyResult& to) {
  const size_t tokens = in.mask.size();
  SF_ASSERT(reference.size() == tokens && in.log_probs.size() == tokens && to.gradient.size() == tokens);
  double sum = 0;
  for (size_t t = 0; t < tokens; ++t) {
    if (!in.mask[t]) continue;
    const KlToken token = kl_of(loss.kl, in.log_probs[t], reference[t]);
    sum += in.shares[t] * token.value;
    to.gradient[t] += loss.coefficient * in.shares[t] * token.gradient;
  }
  to.loss += loss.coefficient * sum;
  return sum;
}

std::vector<double> with_kl(Numbers rewards, Numbers kl, Mask mask, double beta) {
  SF_ASSERT(rewards.size() == mask.size() && kl.size() == mask.size());
  std::vector<double> result(rewards.begin(), rewards.end());
  for (size_t t = 0; t < mask.size(); ++t)
    if (mask[t]) result[t] -= beta * kl[t];
  return result;
}

double adapted_beta(double beta, double kl, double target, double samples, double horizon) {
  return beta * (1 + std::clamp(kl / target - 1, -0.2, 0.2) * samples / horizon);
}

}  // namespace sf::rl
