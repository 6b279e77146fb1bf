// SPDX-License-Identifier: Apache-2.0
// Linear layers of an inference model, with a LoRA adapter beside them that may be exchanged while the weights stay.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "gen/weights.h"
#include "ops/packed_linear.h"

namespace sf::gen {

// What an adapter adds to one parameter: scale * B A, of A [rank, in] and B [out, rank], fp32.
struct Factors {
  at::Tensor a, b;
  double scale = 1;
};
// By the parameter that is adapted: "model.layers.0.self_attn.q_proj.weight".
using LiveAdapter = std::map<std::string, Factors, std::less<>>;

// Immutable but for adapt(); apply() is safe from several threads at once.
class Linear {
 public:
  Linear() = default;
  // The named [rows_i, in] matrices one below the other.
  Linear(const Weights& weights, std::span<const std::string> names, std::span<const int64_t> rows, int64_t in);

  Linear(const at::Tensor& weight, Dtype compute) : base_(ops::PackedLinear::pack(weight, compute)) {}

  // x W^T + bias + (x A^T) (scale B)^T, in x's dtype; each row's bits depend on that row alone.
  at::Tensor apply(const at::Tensor& x, const at::Tensor& bias = {}) const;
  // The adapter's factors of these names take the place of those before; returns how many there are. kData for factors
  // of another shape.
  size_t adapt(const LiveAdapter& adapter);

 private:
  std::vector<std::string> names_;
  std::vector<int64_t> rows_;
  ops::PackedLinear base_, low_, up_;  // low: all A one below the other; up: B, each in its own rows and columns
};

}  // namespace sf::gen
