// SPDX-License-Identifier: Apache-2.0
// The DFlash draft in training. Source: eagle_dflash 2.1-2.5.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "arch/dflash.h"
#include "model/block_backbone.h"
#include "ops/vocabulary_head.h"

namespace sf::model {

// What a label weighs beside its slot: nothing more, or as D-PACE has it, by how likely the slots before it (prefix)
// and behind it are.
enum class SlotLoss { kPlain, kDpace, kDpacePrefix, kDpaceSuffixOverPrefix };
// The reference's names: dflash, dpace, dpace-cumulative-confidence-only, dpace-continuation-value-only; kConfig naming
// them otherwise.
SlotLoss slot_loss_from_name(std::string_view name);

struct DflashOptions {
  int64_t head_chunk = ops::kHeadChunk;  // rows of the head multiplied at once; bits depend on it
  SlotLoss loss = SlotLoss::kPlain;
  double dpace_alpha = 0.5;  // a slot of probability p counts (1 - alpha) p + alpha
};

// D-PACE's weight of every label (eagle_dflash 2.5), without gradient: p = exp(-nll), s = (1 - alpha) p + alpha (1 for
// a slot without a label), prefix_k = s_1 ... s_k, suffix_k = sum of prefix over the labels from k on. kPlain: ones.
std::vector<double> dpace_weights(const DflashOptions& options, int64_t block, std::span<const int64_t> slots,
                                  std::span<const float> nll);

// The segments of arch::describe_training(draft, tied): the backbone's (block_segments), then
//   "head"     states, label_ids -> nll F32 [R], top1 I64 [R]: the target's head (frozen)
//   "loss"     nll and slot_weights F32 [K] -> loss F32 [] = sum of slot_weights[k] dpace nll; slot_sums F64 [K,3]:
//   sums
//              of nll, correct predictions, and parts of the loss, by slot (row 0 is empty)
// Logits and losses are fp32.
std::vector<Segment> dflash_segments(const arch::Dflash& draft, bool tied, const DflashOptions& options = {});

// What families built on it share.
Segment vocabulary_head_segment(Segment segment, int64_t chunk);

}  // namespace sf::model
