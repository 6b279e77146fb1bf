// SPDX-License-Identifier: Apache-2.0
// The Domino draft in training: logits of a block, corrected along its gold tokens. Source: eagle_dflash 4.1.
#pragma once
#include <vector>

#include "arch/domino.h"
#include "model/block_backbone.h"
#include "model/slices.h"

namespace sf::model {

struct DominoOptions {
  int64_t slice = kSliceRows;
};

// Columns of slot_sums, sums over the labels of a slot: cross-entropies with and without the correction, correct
// predictions likewise, labels reached by right ones alone (a slot without a label counts as right); parts of the loss.
enum DominoSum { kFinal, kBase, kFinalRight, kBaseRight, kFinalReached, kBaseReached, kDominoLoss };
inline constexpr int64_t kDominoSums = 7;

BlockLabels domino_labels(const arch::Domino& draft);

// The segments of arch::describe_training(draft, tied): the backbone's; "embed_tokens": rows of the target's embedding
// of the blocks' gold tokens; then
//   "head"     slot_weights F32 [K], base_share F32 [] -> loss F32 [] = sum over labels of slot_weights[k] ((1 -
//              base_share) CE of the corrected logits + base_share CE of the others), slot_sums F64 [K, kDominoSums].
//              A GRU without biases reads the tokens before a slot's label; slots from first_corrected() on add
//              embed_proj([state of the slot, state of the GRU]) to their logits.
// Logits and losses are fp32.
std::vector<Segment> domino_segments(const arch::Domino& draft, bool tied, const DominoOptions& options = {});

}  // namespace sf::model
