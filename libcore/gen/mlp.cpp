// SPDX-License-Identifier: Apache-2.0
#include "gen/mlp.h"

#include <array>

#include "gen/gates.h"
#include "model/experts.h"
#include "ops/swiglu.h"

namespace sf::gen {
Mlp::Mlp(const Weights& weights, const std::string& at, int64_t hidden, int64_t width, bool biased) {
  gate_ = Linear(weights, std::array{at + "gate_proj.weight"}, std::array{width}, hidden);
  up_ = Linear(weights, std::array{at + "up_proj.weight"}, std::array{width}, hidden);
  down_ = Linear(weights, std::array{at + "down_proj.weight"}, std::array{hidden}, width);
  gate_bias_ = weights.maybe(at + "gate_proj.bias", {width}, biased);
  up_bias_ = weights.maybe(at + "up_proj.bias", {width}, biased);
  down_bias_ = weights.maybe(at + "down_proj.bias", {hidden}, biased);
}

Mlp::Mlp(const at::Tensor& gate_up, const at::Tensor& down, Dtype compute)
    : gate_(gate_up.narrow(0, 0, gate_up.size(0) / 2), compute),
      up_(gate_up.narrow(0, gate_up.size(0) / 2, gate_up.size(0) / 2), compute),
      down_(down, compute) {}

at::Tensor Mlp::apply(const at::Tensor& x) const {
  // Two products rather than a fused one: the gate's halves would have to be copied apart.
  return down_.apply(ops::swiglu(gate_.apply(x, gate_bias_), up_.apply(x, up_bias_)), down_bias_);
}

size_t Mlp::adapt(const LiveAdapter& adapter) {
  return gate_.adapt(adapter) + up_.adapt(adapter) + down_.adapt(adapter);
}

RoutedMlp::RoutedMlp(const Weights& weights, const std::string& at, int64_t hidden, const arch::Experts& experts,
                     bool biased)
    : shape_(experts) {
  const arch::Experts& e = experts;
  router_ = weights.pack(std::array{at + "gate.weight"}, std::array{e.count}, hidden);
  const at::Tensor gate_up = weights.get(at + "experts.gate_up_proj", {e.count, 2 * e.width, hidden});
  const at::Tensor down = weights.get(at + "experts.down_proj", {e.count, hidden, e.width});
  for (int64_t i = 0; i < e.count; ++i) experts_.emplace_back(gate_up[i], down[i], weights.compute());
  if (e.shared_width == 0) return;
  shared_.emplace_back(weights, at + "shared_expert.", hidden, e.shared_width, biased);
  share_ = weights.pack(std::array{at + "shared_expert_gate.weight"}, std::array{int64_t{1}}, hidden);
}

at::Tensor RoutedMlp::apply(const at::Tensor& x) const {
  auto one = [&](int64_t expert, const at::Tensor& rows) { return experts_[static_cast<size_t>(expert)].apply(rows); };
  at::Tensor mixed = model::mix_experts(x, router_.apply(x), one, shape_);
  if (!shared_.empty()) mixed.add_(shared_.front().apply(x).mul_(sigmoid(share_.apply(x))));
  return mixed;
}

}  // namespace sf::gen
