// SPDX-License-Identifier: Apache-2.0
// The gated delta rule, and the causal depthwise convolution before it (models_text_scoring 3.3). All arithmetic is
// fp32; activations are fp32 or bf16 (Type).
#pragma once
#include <cstddef>
#include <cstdint>

#include "sf_kernels/parallel.h"
#include "sf_kernels/rows.h"

namespace sf::kernels {

constexpr size_t kDeltaChunk = 64;  // tokens that the chunked form takes at once

// Of each (batch, value head) h, which reads key head h / (value_heads / key_heads), a state S [key_dim, value_dim] and
// token by token, with k^ = k / sqrt(k.k + 1e-6) and q^ = q / sqrt(q.q + 1e-6) / sqrt(key_dim):
//   S = e^decay S;  d = beta (v - S^T k^);  S = S + k^ d^T;  out = S^T q^
// q, k, v: [batch, length, heads, dim] by steps in elements, the last two without gaps.
struct Delta {
  Type type = Type::kF32;
  size_t batch = 1, length = 0, key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  size_t batch_step = 0, token_step = 0;
  const float* decay = nullptr;  // [batch, length, value_heads], not positive
  const float* beta = nullptr;   // the same
};

// Token by token: a token's bits depend on the state before it and on itself alone, so a sequence may be cut anywhere.
// state: [batch, value_heads, key_dim, value_dim], changed in place. out: [batch, length, value_heads, value_dim].
void delta_steps(const Delta& op, void* out, float* state, const Parallel& parallel = {});

// The same in chunks of kDeltaChunk tokens from a state of zeros: products of matrices and one triangular system a
// chunk. states: the state before each chunk, [batch, chunks, value_heads, key_dim, value_dim], for the gradient; may
// be null.
void delta_chunks(const Delta& op, void* out, float* states, const Parallel& parallel = {});
size_t delta_state_floats(const Delta& op);  // of all of them

// g: of out, without gaps. dq, dk, dv: as q, k, v, with steps of their own; ddecay, dbeta: fp32 as decay. All are
// overwritten.
struct DeltaGradient {
  const void* g = nullptr;
  const float* states = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  size_t batch_step = 0, token_step = 0;
  float* ddecay = nullptr;
  float* dbeta = nullptr;
};
void delta_backward(const Delta& op, const DeltaGradient& gradient, const Parallel& parallel = {});

// y[b, t, c] = silu(sum over j of weight[j, c] x[b, t - (taps - 1 - j) dilation, c]); places before a row's first are
// zero. x: [batch, length, channels] by strides in elements, the last one 1; y without gaps.
struct Convolution {
  Type type = Type::kF32;
  size_t batch = 1, length = 0, channels = 0, taps = 0, dilation = 1;
  const void* x = nullptr;
  size_t x_batch = 0, x_token = 0;
  const float* weight = nullptr;  // [taps, channels]
};
void conv_silu(const Convolution& op, void* y, const Parallel& parallel = {});
// g: of y, without gaps. dx [batch, length, channels] of op.type; dweight fp32 [taps, channels], summed in the order of
// tokens. Both are overwritten.
void conv_silu_backward(const Convolution& op, const void* g, void* dx, float* dweight, const Parallel& parallel = {});

namespace reference {
void delta_steps(const Delta& op, void* out, float* state);
void conv_silu(const Convolution& op, void* y);
}  // namespace reference

}  // namespace sf::kernels
