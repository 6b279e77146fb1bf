// SPDX-License-Identifier: Apache-2.0
// What stands behind attention in inference: one MLP, or many of which a router chooses some for each token. Every
// row's bits depend on that row alone.
#pragma once
#include <string>
#include <vector>

#include "arch/decoder.h"
#include "gen/linear.h"
#include "gen/weights.h"
#include "ops/packed_linear.h"

namespace sf::gen {

class Mlp {
 public:
  // `at`: what the names begin with, "model.layers.3.mlp.".
  Mlp(const Weights& weights, const std::string& at, int64_t hidden, int64_t width, bool biased);
  // gate above up [2 width, hidden], and down [hidden, width].
  Mlp(const at::Tensor& gate_up, const at::Tensor& down, Dtype compute);
  at::Tensor apply(const at::Tensor& x) const;  // [rows, hidden] -> the same
  size_t adapt(const LiveAdapter& adapter);     // as Linear::adapt

 private:
  Linear gate_, up_, down_;
  at::Tensor gate_bias_, up_bias_, down_bias_;
};

// Router, experts, and the expert that every token passes, if there is one. Source: models_text_scoring 3.1.
class RoutedMlp {
 public:
  RoutedMlp(const Weights& weights, const std::string& at, int64_t hidden, const arch::Experts& experts, bool biased);
  at::Tensor apply(const at::Tensor& x) const;

 private:
  arch::Experts shape_;
  ops::PackedLinear router_, share_;
  std::vector<Mlp> experts_, shared_;  // shared: none or one
};

}  // namespace sf::gen
