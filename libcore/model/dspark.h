// SPDX-License-Identifier: Apache-2.0
// The DSpark draft in training: next-token slots against the target's distribution. Source: eagle_dflash 3.
#pragma once
#include <vector>

#include "arch/dspark.h"
#include "model/block_backbone.h"

namespace sf::model {

struct DsparkOptions {
  double ce_alpha = 0.1, l1_alpha = 0.9, confidence_alpha = 1;

  bool asks_teacher() const { return l1_alpha != 0 || confidence_alpha != 0; }
};

// Slot k predicts x[a + 1 + k], up to the first slot without a label.
inline constexpr BlockLabels kDsparkLabels{.next = true, .contiguous = true};
// Columns of slot_sums, sums over the labels of a slot: cross-entropy, correct predictions, L1, the confidence's
// cross-entropy and its distance from the acceptance, agreement with the teacher's first choice, its probability, the
// draft's own; the product of the acceptances up to the slot; parts of the loss.
enum DsparkSum { kCe, kCorrect, kL1, kConfidence, kDistance, kAgreement, kTeacherTop, kDraftTop, kTau, kLossPart };
inline constexpr int64_t kDsparkSums = 10;

// The segments of arch::describe_training(draft, tied): the backbone's, then
//   "head"     final_norm [B,S,H] and slot_weights F32 [K] -> loss F32 [] = sum over labels of slot_weights[k]
//   (ce_alpha
//              CE + l1_alpha L1 + confidence_alpha BCE), slot_sums F64 [K, kDsparkSums]. The teacher of slot k is the
//              target's softmax at index a + k; the confidence is trained on the acceptance 1 - L1 / 2, which it does
//              not change.
// Logits, soft-max and losses are fp32. final_norm is not read where neither L1 nor the confidence counts.
std::vector<Segment> dspark_segments(const arch::Dspark& draft, bool tied, const DsparkOptions& options = {});

}  // namespace sf::model
