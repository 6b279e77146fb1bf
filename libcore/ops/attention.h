// SPDX-License-Identifier: Apache-2.0
// Causal attention with grouped keys (head dims up to 512): for training (differentiable) and over a KV cache
// (row-invariant).
#pragma once
#include <span>

#include "tensor/tensor.h"

namespace sf::ops {

struct AttentionOptions {
  double scale = 0;    // on q k^T; 0: hd^-1/2
  int64_t window = 0;  // key j is visible to query i iff i - j < window; 0: all
  // Visible keys of each row of the batch: [key_begin, key_end). I64 [B] each, or undefined: [0, S). Left padding is
  // key_begin, right padding key_end. A query that sees no key yields zeros and passes no gradient.
  at::Tensor key_begin, key_end;
};

// q: [B, nH, S, hd]; k, v: [B, nKV, S, hd]; nH a multiple of nKV, query head h reads key head h / (nH / nKV). fp32 or
// bf16, any strides with hd contiguous -> [B, nH, S, hd] (contiguous as [B, S, nH, hd] behind the view, so that merging
// heads is free). Scores and soft-max in fp32. Differentiable in q, k, v; memory O(S hd), not O(S^2).
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionOptions& options = {});

// EAGLE3's unrolled step (eagle_dflash 1.5): query j sees keys 0..j of block 0 and, of every later block, its own index
// j alone. q: [B, nH, S, hd]; k[0], v[0]: [B, nKV, S, hd] block 0, k[i], v[i] of the same shape the diagonals (the
// current step's last). Options mask block 0 only (window is not supported). Differentiable in q and every k and v.
at::Tensor attention_with_diagonals(const at::Tensor& q, std::span<const at::Tensor> k, std::span<const at::Tensor> v,
                                    const AttentionOptions& options = {});

// DFlash's blocks (eagle_dflash 2.2, 2.4): a slot of block n sees keys [0, anchors[n]) of the context and all slots of
// its own block; blocks do not see each other. q: [nH, N * K, hd], k, v: [nKV, N * K, hd] of the slots, block by block;
// k_context, v_context: [nKV, C, hd]; every anchor in [0, C]. Types and strides as above -> [nH, N * K, hd].
// With a window w, slot o of a block at anchor a sees context from a + o - (w - 1) on and of its block the slots up to
// itself. Differentiable in all five; keys and values of the slots are held K times over while it runs.
at::Tensor attention_of_blocks(const at::Tensor& q, const at::Tensor& k_context, const at::Tensor& v_context,
                               const at::Tensor& k, const at::Tensor& v, std::span<const int64_t> anchors,
                               int64_t window = 0);

// Rows that each see a range of the context and one own key of every diagonal. q: [nH, N, hd]; k_context, v_context:
// [nKV, C, hd]; k[i], v[i]: [nKV, N, hd]; ranges: first and one past the last visible context key, [N] each. Types and
// strides as above -> [nH, N, hd]. Differentiable in all.
struct KeyRanges {
  std::span<const int64_t> begin, end;
};
at::Tensor attention_of_rows(const at::Tensor& q, const at::Tensor& k_context, const at::Tensor& v_context,
                             std::span<const at::Tensor> k, std::span<const at::Tensor> v, const KeyRanges& ranges);

// Inference over a cache. q: [nH, rows, hd]; k_cache, v_cache: [nKV, T, hd] of one dtype (fp32 or bf16), hd contiguous,
// entry t holding position t; positions: of each row, ascending or not; row r sees keys 0..positions[r] (window as
// above), all of them already in the cache (later entries are never read). -> [rows, nH * hd] in q's dtype. Keys are
// taken in fixed blocks from position 0, so a row's bits do not depend on how many rows are computed together. scale 0:
// hd^-1/2.
at::Tensor attend_cached(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                         std::span<const int64_t> positions, int64_t window = 0, double scale = 0);

}  // namespace sf::ops
