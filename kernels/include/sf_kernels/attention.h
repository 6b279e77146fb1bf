// SPDX-License-Identifier: Apache-2.0
// Attention of query rows over ranges of keys, by fixed blocks of keys from key 0, with an online soft-max in fp32. A
// row's bits depend on its query and the keys it sees alone, not on its neighbours.
#pragma once
#include <cstddef>
#include <cstdint>

#include "sf_kernels/parallel.h"
#include "sf_kernels/rows.h"

namespace sf::kernels {

constexpr size_t kKeyBlock = 64;
constexpr size_t kMostDims = 512;

// [batch, heads, rows, dims] in strides of elements; dims are contiguous.
template <typename T>
struct Heads {
  T* data = nullptr;
  size_t batch = 0, head = 0, row = 0;
};

struct Attention {
  size_t batch = 1, heads = 0, kv_heads = 0, rows = 0, dims = 0;  // dims: a multiple of 16, at most kMostDims
  float scale = 1;
  Type kv_type = Type::kF32;
  Heads<const float> q;
  Heads<const void> k, v;  // [batch, kv_heads, keys, dims] of kv_type; query head h reads head h / (heads / kv_heads)
  // Row (b, r) sees keys [low[b * rows + r], high[b * rows + r]).
  const int64_t* low = nullptr;
  const int64_t* high = nullptr;
  // Further keys seen by their own row alone: k_diagonal[i] is fp32 [batch, kv_heads, rows, dims] without gaps.
  size_t diagonals = 0;
  const float* const* k_diagonal = nullptr;
  const float* const* v_diagonal = nullptr;
};

// out: fp32, zeros for a row that sees nothing. lse: [batch, heads, rows] (may be null): log-sum-exp of the scaled
// scores.
void attention(const Attention& op, Heads<float> out, float* lse, const Parallel& parallel = {});

// Gradients, for kv_type fp32. g: of out. dq [batch, heads, rows, dims], dk and dv [batch, kv_heads, keys, dims] and
// the diagonals' [batch, kv_heads, rows, dims], all without gaps, are overwritten.
struct AttentionGradient {
  Heads<const float> out, g;
  const float* lse = nullptr;
  size_t keys = 0;
  float* dq = nullptr;
  float* dk = nullptr;
  float* dv = nullptr;
  float* const* dk_diagonal = nullptr;
  float* const* dv_diagonal = nullptr;
};
void attention_backward(const Attention& op, const AttentionGradient& gradient, const Parallel& parallel = {});

namespace reference {
void attention(const Attention& op, Heads<float> out, float* lse);
}

}  // namespace sf::kernels
