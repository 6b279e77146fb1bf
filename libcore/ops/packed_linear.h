// SPDX-License-Identifier: Apache-2.0
// Linear layers for inference: weights packed once, rows computed independently of each other. shardforge(7), Numbers.
#pragma once
#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "tensor/tensor.h"

namespace sf::ops {

// Immutable after pack(); copies share the packed bytes; apply() is safe from several threads at once. No gradients.
// Numbers: each output element is one sum over k in ascending order, in fp32 (kF32: one fma a term; kBF16: both sides
// rounded to bf16, products added in pairs). Row i's bits depend on row i alone: not on M, the other rows or threads.
class PackedLinear {
 public:
  PackedLinear() = default;
  // weight: [N, K] fp32 or bf16, any strides; kConfig if compute is neither kF32 nor kBF16. Keeps no reference to
  // weight.
  static PackedLinear pack(const at::Tensor& weight, Dtype compute);

  bool defined() const { return state_ != nullptr; }
  int64_t in_features() const;   // K
  int64_t out_features() const;  // N
  Dtype compute() const;
  int64_t bytes() const;  // of the packed weights

  // x: [..., K] fp32 or bf16 -> [..., N] in x's dtype. bias: [N] or undefined, added in fp32 before the last rounding.
  at::Tensor apply(const at::Tensor& x, const at::Tensor& bias = {}) const;
  // The same, always fp32 out (logits).
  at::Tensor apply_fp32(const at::Tensor& x, const at::Tensor& bias = {}) const;

 private:
  friend struct Top1 argmax_and_lse(const at::Tensor&, const PackedLinear&);
  struct State;
  std::shared_ptr<const State> state_;
};

struct Top1 {
  at::Tensor top1;    // I32 [M]: argmax, the lowest id wins a tie
  at::Tensor lse;     // F32 [M]: log-sum-exp over all N
  at::Tensor margin;  // F32 [M]: best minus second best
};
// hidden: [M, K]. The logits are fp32 and never all in memory; equal to argmax of apply_fp32 bit for bit.
// Row-invariant.
Top1 argmax_and_lse(const at::Tensor& hidden, const PackedLinear& head);

}  // namespace sf::ops
