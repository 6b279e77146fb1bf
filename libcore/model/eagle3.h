// SPDX-License-Identifier: Apache-2.0
// The EAGLE3 draft in training: unrolled steps with teacher-forced tokens, one gradient a parameter.
// Source: eagle_dflash 1.2, 1.4-1.6.
#pragma once
#include <cstdint>
#include <vector>

#include "arch/eagle3.h"
#include "arch/model_spec.h"
#include "model/lk_loss.h"
#include "model/segment.h"

namespace sf::model {

struct Eagle3Options {
  int unroll = 3;  // T: draft tokens predicted in a row from one index
  // false: the loss mask shifts with its token (index j uses m[j+1]); each unrolled step divides by its supervised
  // labels. true: as SpecForge 0.2.0 does it: the mask stays, each step's mean divides by B * S.
  bool reference_quirks = false;
  // Keep of each unrolled step its carried state, keys and values alone; the rest is computed again for the gradient.
  bool recompute = false;
  // Instead of the cross-entropy. Under the quirk the weight of lambda is one for all rows of a micro-batch, and its
  // two parts keep their different divisors.
  LkLoss lk = {};
};

// The draft's words: t2d BOOL [V] (is a target id in the draft's vocabulary), d2t I64 [Vd] (target id = i + d2t[i]).
struct Eagle3Vocabulary {
  at::Tensor t2d, d2t;
};

inline constexpr double kStepDecay = 0.8;  // weight of unrolled step k is 0.8^k; fixed, as in the reference

// The labels of a micro-batch: a function of the data alone. Label (b, i) stands for the teacher at index i + 1, which
// predicts token i + 2; unrolled step k reaches it from index i - k.
struct Eagle3Labels {
  std::vector<int64_t>
      trained;  // b * S + i, ascending: the mask holds and the teacher's top-1 is in the draft vocabulary
  std::vector<int64_t> trained_count, supervised_count;  // [T]: labels that step k reaches; supervised: the mask alone
};
// Reads the boundaries loss_mask, target_top1, lengths.
Eagle3Labels eagle3_labels(const Tensors& micro_batch, const Eagle3Vocabulary& vocabulary,
                           const Eagle3Options& options);

// The sizes that the segment computes with for this micro-batch.
arch::Eagle3Batch eagle3_batch(const Tensors& micro_batch, const Eagle3Vocabulary& vocabulary,
                               const Eagle3Options& options);

// The segments of arch::describe_training(draft): "tokens" (ids to look up: every slot's, then id 0), "embed" (their
// rows: a table call), "eagle3" (the unrolled steps). Together
// Read   input_ids, loss_mask, target_top1 I64 [B,S] · hidden_state [B,S,3Ht] and final_norm [B,S,Ht] in the compute
// dtype ·
//        target_lse F32 [B,S] · lengths I64 [B] (right padding; rows may have length 0) · step_weights F32 [T].
// Write  loss F32 [] = sum over k of step_weights[k] * numerator[k], numerator[k] = sum over trained labels of
//        -(P . log_softmax(logits_k)), P the teacher's distribution renormalised on the draft vocabulary, or of the LK
//        loss of options.lk;
//        step_sums F64 [T,3], detached: numerator, correct top-1 predictions, sum of acceptance rates
//        (sum over v of min(softmax(logits_k), Q), Q the target's own probabilities).
// Require at least one trained label (kSoftware otherwise). Indices after a row's last label are not computed, later
// steps only those that reach a label.
std::vector<Segment> eagle3_segments(const arch::Eagle3& draft, const Eagle3Vocabulary& vocabulary,
                                     const Eagle3Options& options);

// Boundaries that trace the inside, for tests: adds the writes hidden.k [A,H] and logits.k [labels of step k, Vd], and
// `active` I64 [A] (b * S + j of each row of hidden.k) and `label_rows.k` I64 (label index b * S + i of each row of
// logits.k).
std::vector<Segment> eagle3_traced_segments(const arch::Eagle3& draft, const Eagle3Vocabulary& vocabulary,
                                            const Eagle3Options& options);

}  // namespace sf::model
