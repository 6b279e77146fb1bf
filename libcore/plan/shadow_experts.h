// SPDX-License-Identifier: Apache-2.0
// The shadow of model/experts: a router's choice among many MLPs. Only a run knows how many tokens an expert gets;
// their sum over experts is always tokens x chosen. A plan asks for the spreads that hold the most.
#pragma once
#include <vector>

#include "arch/adapter.h"
#include "arch/decoder.h"
#include "plan/shadow_ops.h"

namespace sf::plan {

// Tokens of each expert.
using Spread = std::vector<int64_t>;
// What no router asks more than: even, and all tokens with the same experts, every other one with a single token on
// top, so that it has gradients. The full experts once first (the gradients of all others wait while they compute) and
// once last (the states of all others do).
std::vector<Spread> widest_spreads(const arch::Experts& experts, int64_t tokens);

// The fused weight of every expert's linear layer [experts, out, in]; its adapter's A and B, if there is one.
class ShadowBank {
 public:
  ShadowBank(Tape& tape, ShadowOps& ops, const Shade& weight);
  void adapt(const Shade& a, const Shade& b, const arch::Adapter& adapter);
  Shade apply(size_t expert, const Shade& x) const;

 private:
  Tape& tape_;
  ShadowOps& ops_;
  Shades weight_, a_, b_;
};

// x [N, H], the router's scores [N, experts] -> [N, H].
struct ShadowExperts {
  const arch::Experts& experts;
  const ShadowBank &gate_up, &down;
  Shade mix(Tape& tape, ShadowOps& ops, const Shade& x, const Shade& scores, const Spread& spread) const;
};

}  // namespace sf::plan
