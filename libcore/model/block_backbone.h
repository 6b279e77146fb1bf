// SPDX-License-Identifier: Apache-2.0
// What drafts of blocks have in common in training: blocks of masked slots behind anchors, each reading the target's
// states before its anchor and itself. Source: eagle_dflash 2.1-2.4.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "arch/dflash.h"
#include "model/segment.h"

namespace sf::model {

// Which token a slot predicts, and which slots do.
struct BlockLabels {
  bool next = false;        // slot k of a block at anchor a: x[a + 1 + k] from k = 0; else x[a + k] from k = 1
  bool contiguous = false;  // the first slot without a label ends the block
};

// The kept blocks of a micro-batch, row by row of the batch and by anchor; a function of the data alone.
struct DflashBlocks {
  struct Block {
    int64_t row = 0, anchor = 0;
  };
  std::vector<Block> blocks;
  std::vector<int64_t> slot_ids;      // [M = blocks * K]: the anchor's token, then masks
  std::vector<int64_t> token_ids;     // [M]: what stands there, x[a + k]; 0 beyond the row's end
  std::vector<int64_t> context_rows;  // b * S + i, i before the last anchor of row b: states that some block reads
  // Slots whose label's loss mask holds, by slot, ascending; the label's id; the slot's place in its block.
  std::vector<int64_t> label_slots, label_ids, label_offsets;
};
// Reads input_ids, loss_mask I64 [B,S] · lengths I64 [B] · anchors I64 [B,N] (-1: no block). kData for an anchor or an
// id out of range.
DflashBlocks dflash_blocks(const Tensors& micro_batch, const arch::Dflash& draft, BlockLabels labels = {});

using Sublayer = std::function<at::Tensor(const at::Tensor& x)>;
// What a family puts around a sublayer: `module` is the prefix of its parameters ("layers.0.attention_conv."), x the
// sublayer's normed input [M, H]; the result is added to the residual.
using Around = std::function<at::Tensor(const Tensors& p, const std::string& module, const at::Tensor& x,
                                        const Sublayer& sublayer)>;

struct BlockFamily {
  std::function<void(Segment& segment)> fill;  // forward of the segments that are not the backbone's: heads and losses
  Around around;                               // may be empty
  double embedding_scale = 1;                  // of hidden.0, as the first layer reads it
};

// The segments of `spec` (arch::describe_training of a family), same order, names, parameters and boundaries. The
// backbone's own:
//   "blocks"   integers from the micro-batch: DflashBlocks as boundaries (blocks: I64 [A,2] of row and anchor)
//   "context"  hidden_states [B,S,n H] -> context [C,H] = hidden_norm(fc(...)) at context_rows
//   "embed..." ids -> rows of the target's embedding (frozen); of slot_ids: hidden.0 [M,H]
//   "layers.i" hidden.i, context -> hidden.{i+1}. In a layer with a window w, slot o of a block at anchor a reads
//   states
//              from a + o - (w - 1) on, and the slots of its block up to itself; in others all of both
//   "norm"     hidden.L -> states: [R,H] of the slots with a label if it reads label_slots, else [M,H] of all
// Compute dtype is the parameters'; scores and soft-max are fp32. Requires at least one block (kSoftware). Errors:
// those of arch::check_trainable.
std::vector<Segment> block_segments(const arch::ModelSpec& spec, const arch::Dflash& draft, BlockLabels labels,
                                    const BlockFamily& family);

}  // namespace sf::model
