// SPDX-License-Identifier: Apache-2.0
// The DFlash2 draft in training. Source: eagle_dflash 2b; the selector's later, strict form.
#pragma once
#include <vector>

#include "arch/dflash2.h"
#include "model/dflash.h"
#include "model/slices.h"

namespace sf::model {

struct Dflash2Options {
  DflashOptions slots;                  // what a label weighs
  bool selector_stop_gradient = false;  // the selector changes itself alone
  int64_t slice = kSliceRows;
};

// Columns of slot_sums, sums over the labels of a slot: cross-entropy, correct predictions without the selector; the
// selector's cross-entropy over the labels among their candidates, their count, those it chose; labels reached by
// candidates, and by choices, that hold every label before (a slot without a label does too); parts of the loss.
enum Dflash2Sum { kUnary, kUnaryRight, kSelector, kPresent, kChosen, kOracleReached, kChosenReached, kDflash2Loss };
inline constexpr int64_t kDflash2Sums = 8;

// A grouped dynamic depthwise convolution along the slots of each block. y: [M, C], M a multiple of `block`; base:
// [taps, C]; added: [M, taps, G], G dividing C. out[i, c] = sum over t of (base[t, c] + added[i, t, c / (C / G)]) y[i -
// t, c], terms before the block's first slot left out. Differentiable in all.
at::Tensor block_convolution(const at::Tensor& y, const at::Tensor& base, const at::Tensor& added, int64_t block);

// The segments of arch::describe_training(draft, tied): the backbone's, with a convolution before and behind every
// sublayer, their kernels made from the sublayer's normed input; then
//   "head"     slot_weights F32 [K], selector_share F32 [] -> loss F32 [] = sum over labels of slot_weights[k] dpace
//   (CE +
//              selector_share CE of the selector), slot_sums F64 [K, kDflash2Sums]. The selector adds <A[x] * P h,
//              B[b]> to the logit of each of the top_k candidates b, x the gold token before; a label that is no
//              candidate has no such term.
std::vector<Segment> dflash2_segments(const arch::Dflash2& draft, bool tied, const Dflash2Options& options = {});

}  // namespace sf::model
