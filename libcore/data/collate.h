// SPDX-License-Identifier: Apache-2.0
// From samples to the padded tensors of one micro-batch.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "stream/sample.h"
#include "tensor/tensor.h"

namespace sf::data {

// What the samples of a run must hold; from the contract and the draft.
struct Eagle3Shape {
  int64_t vocab = 0, target_hidden = 0, max_length = 0;
  Dtype compute = Dtype::kF32;  // of hidden_state and final_norm in the batch
};
struct DflashShape {
  int64_t vocab = 0, captured = 0, max_length = 0;  // captured: width of hidden_states, all layers together
  Dtype compute = Dtype::kF32;                      // of hidden_states in the batch
  int64_t anchors = 512;                            // of a row at most
  uint64_t seed = 0;
  bool final_norm = false;  // [S, hidden] of the sample too, in the batch's compute dtype
  int64_t hidden = 0;
};

// Rows of P-EAGLE at depth 1 and more (eagle_dflash 4.2): of the anchors of the depth before whose next token is
// supervised, at most (supervised - d) max(ratio^d, least) are drawn.
struct DepthRule {
  int depths = 8;
  double ratio = 0.8, least = 0.2;
  // Is the token at an index supervised by the mask there, or (the default) by that of the label, one further?
  bool reference_quirks = false;
  uint64_t seed = 0;
};

struct Batch {
  // Right padding with zeros to the longest row: input_ids, loss_mask I64 [B,S]; lengths I64 [B]. Empty if every
  // position is void. EAGLE3: target_top1 I64 [B,S]; hidden_state [B,S,3H], final_norm [B,S,H] in the compute dtype;
  // target_lse F32 [B,S]. DFlash: hidden_states [B,S,captured] in the compute dtype; anchors I64 [B,N], ascending,
  // filled up with -1; and
  // where they are asked for final_norm [B,S,H].
  std::map<std::string, at::Tensor, std::less<>> tensors;
  int64_t rows = 0, voids = 0, tokens = 0;

  bool empty() const { return rows == 0; }
};

// Void samples are left out and counted. Throws kData naming position, tensor and what is wrong: a missing tensor,
// another dtype or shape, a token id outside the vocabulary, a row longer than the contract allows.
Batch collate_eagle3(std::span<const stream::Sample> samples, const Eagle3Shape& shape);
Batch collate_dflash(std::span<const stream::Sample> samples, const DflashShape& shape);

// EAGLE3's batch, and cod_anchors, cod_depths I64 [B,n], by depth, by anchor, filled up with -1.
Batch collate_peagle(std::span<const stream::Sample> samples, const Eagle3Shape& shape, const DepthRule& rule);

// The sampled rows of one row of the data: anchors and depths, by depth, by anchor. A function of (seed, position), the
// rule and the mask alone.
struct DepthRows {
  std::vector<int64_t> anchors, depths;
};
DepthRows draw_depths(std::span<const uint8_t> mask, const DepthRule& rule, uint64_t position);

// Anchors of one row (eagle_dflash 2.4): at most `count` indices p with mask[p] and mask[p + 1], drawn uniformly
// without replacement, ascending. A function of (seed, position) and the mask alone.
std::vector<int64_t> draw_anchors(std::span<const uint8_t> mask, int64_t count, uint64_t seed, uint64_t position);

// Samples of input_ids I32 [S] and loss_mask U8 [S] -> ids, positions, labels I64 [B,S], padded on the right to the
// longest row: the label at (b, j) is token j + 1 where its mask is 1, -1 everywhere else. Errors as above.
Batch collate_sft(std::span<const stream::Sample> samples, int64_t vocab, int64_t max_length);

}  // namespace sf::data
