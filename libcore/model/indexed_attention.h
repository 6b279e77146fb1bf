// SPDX-License-Identifier: Apache-2.0
// Sparse attention (models_text_scoring 3.5, 3.6): an indexer scores blocks of `ratio` keys for each query and keeps
// the best budget / ratio of those that are complete, and what is left at the end. Within the budget that is all, and
// attention is dense, bit for bit.
#pragma once
#include <cstdint>
#include <vector>

#include "model/block_parts.h"

namespace sf::model {

// Tokens of each row of the batch: [begin, end).
struct TokenRange {
  int64_t begin = 0, end = 0;
};
// Of [B, S] of nonzero = token, or of whole rows where there is no mask. kData for a gap.
std::vector<TokenRange> token_ranges(const at::Tensor* mask, int64_t batch, int64_t length);

// Rows from `first` on: which keys they keep, bool [B, S - first, S]; a row of padding keeps none. Blocks are cut from
// a row's first token on, a block turns by its first token's position, and the lower block wins a tie. x: what the
// attention reads, [B, S, H]. No gradient.
at::Tensor indexed_keys(const arch::Decoder& decoder, const Given& given, const at::Tensor& x,
                        const Rotary::Turns& turns, int64_t first);
// Rows below it are within the budget, in every row of the batch.
int64_t dense_rows(const arch::Indexer& indexer, const std::vector<TokenRange>& ranges, int64_t length);

// Attention of the rows of q, [B, nH, R, hd], over the kept keys; k, v: [B, nKV, T, hd], kept: bool [B, R, T].
// Differentiable in q, k, v; scores live for a few rows at a time and are made again for the gradient.
at::Tensor attend_kept(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& kept);

}  // namespace sf::model
