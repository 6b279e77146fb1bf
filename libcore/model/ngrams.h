// SPDX-License-Identifier: Apache-2.0
// Embeddings of n-grams (models_text_scoring 3.5, 3.6): which rows of a table a token finds, and how they join the
// residual.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "arch/decoder.h"
#include "model/block_parts.h"

namespace sf::model {

// Rows of the table of each head, [heads] a token, of tokens whose predecessors are `before` (the oldest first, at most
// longest - 1; where there are fewer, the sequence began). No n-gram reaches across an end of a segment: what lies
// before is taken as that token.
std::vector<int64_t> ngram_rows(const arch::Ngrams& ngrams, const arch::NgramHash& hash,
                                std::span<const int64_t> before, std::span<const int64_t> ids);

// The segment "ngrams": ids [B, S] -> ngram_ids.i, I64 [B * S * heads], of each layer that has a table; padding counts
// as an end.
Segment ngrams_segment(const arch::Decoder& decoder, const arch::Segment& described);
// The segment of one table: ngram_ids.i -> ngram_rows.i [B * S * heads, width / heads].
Segment ngram_table_segment(const arch::Segment& described);
// What the n-grams of the layer at hand add to its residual [B, S, streams * H].
Part ngram_part(const arch::Decoder& decoder, int64_t layer);

}  // namespace sf::model
