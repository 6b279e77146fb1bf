// SPDX-License-Identifier: Apache-2.0
// The gated delta rule and the convolution before it (models_text_scoring 3.3).
#pragma once
#include <cstdint>

#include "tensor/tensor.h"

namespace sf::ops {

struct DeltaHeads {
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;  // value_heads: a multiple of key_heads
  int64_t channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
};

// mixed: [B, S, channels], fp32 or bf16: q, k and v of a token one behind the other, head by head; decay (not positive)
// and beta: F32 [B, S, value_heads] -> [B, S, value_heads, value_dim] of mixed's dtype. Of each value head, which reads
// key head h / (value_heads / key_heads), from a state S of zeros [key_dim, value_dim]:
//   S = e^decay S;  d = beta (v - S^T k);  S = S + k d^T;  out = S^T q
// with k / sqrt(k.k + 1e-6) for k and q / sqrt(q.q + 1e-6) / sqrt(key_dim) for q. Differentiable in all three. fp32
// inside, in chunks of 64 tokens: within 1e-5 of the sequential form on outputs of order one. Time and memory are
// linear in S: kept for the gradient are the arguments and a state every 64 tokens.
at::Tensor delta_rule(const at::Tensor& mixed, const at::Tensor& decay, const at::Tensor& beta,
                      const DeltaHeads& heads);
// For inference, token by token from `state`, F32 [B, value_heads, key_dim, value_dim], which is changed in place: a
// token's bits depend on the state before it and on itself alone. No gradients.
at::Tensor delta_steps(const at::Tensor& mixed, const at::Tensor& decay, const at::Tensor& beta,
                       const DeltaHeads& heads, at::Tensor& state);

// x: [B, S, C], weight: [C, taps] of one dtype, fp32 or bf16 -> silu of the causal convolution of each channel, [B, S,
// C]: y_t = silu(sum over j of weight[j] x_{t - (taps - 1 - j) dilation}), zeros before the first token. fp32 inside,
// rounded once. Differentiable in both.
at::Tensor conv_silu(const at::Tensor& x, const at::Tensor& weight, int64_t dilation = 1);

}  // namespace sf::ops
