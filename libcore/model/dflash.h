// SPDX-License-Identifier: Apache-2.0
// The DFlash draft in training: blocks of masked slots behind anchors, each reading the target's states before its
// anchor and itself. Source: eagle_dflash 2.1-2.5.
#pragma once
#include <cstdint>
#include <vector>

#include "arch/dflash.h"
#include "model/segment.h"
#include "ops/vocabulary_head.h"

namespace sf::model {

// The kept blocks of a micro-batch, row by row of the batch and by anchor; a function of the data alone.
struct DflashBlocks {
  struct Block {
    int64_t row = 0, anchor = 0;
  };
  std::vector<Block> blocks;
  std::vector<int64_t> slot_ids;      // [M = blocks * K]: the anchor's token, then masks
  std::vector<int64_t> context_rows;  // b * S + i, i before the last anchor of row b: states that some block reads
  // Slot k > 0 of a block at anchor a predicts x[a + k] wherever the loss mask holds there. By slot, ascending.
  std::vector<int64_t> label_slots, label_ids, label_offsets;
};
// Reads input_ids, loss_mask I64 [B,S] · lengths I64 [B] · anchors I64 [B,N] (-1: no block). kData for an anchor or an
// id out of range.
DflashBlocks dflash_blocks(const Tensors& micro_batch, const arch::Dflash& draft);

struct DflashOptions {
  int64_t head_chunk = ops::kHeadChunk;  // rows of the head multiplied at once; bits depend on it
};

// The segments of arch::describe_training(draft, tied), same order, names, parameters and boundaries:
//   "blocks"   integers from the micro-batch: DflashBlocks as boundaries (blocks: I64 [A,2] of row and anchor)
//   "context"  hidden_states [B,S,n H] -> context [C,H] = hidden_norm(fc(...)) at context_rows
//   "embed"    slot_ids -> hidden.0 [M,H]: rows of the target's embedding (frozen)
//   "layers.i" hidden.i, context -> hidden.{i+1}
//   "norm"     hidden.L at label_slots -> states [R,H]
//   "head"     states, label_ids -> nll F32 [R], top1 I64 [R]: the target's head (frozen)
//   "loss"     nll and slot_weights F32 [K] -> loss F32 [] = sum of slot_weights[k] nll; slot_sums F64 [K,2]: sums of
//              nll, and correct predictions, by slot (row 0 is empty)
// Compute dtype is the parameters'; scores, soft-max, logits and losses are fp32. Requires at least one block
// (kSoftware). Errors: those of arch::check_trainable.
std::vector<Segment> dflash_segments(const arch::Dflash& draft, bool tied, const DflashOptions& options = {});

}  // namespace sf::model
