// SPDX-License-Identifier: Apache-2.0
// The operators of this room as chains of LibTorch's own, for tensors of any device; what the headers promise of values
// and gradients holds within rounding, bits and memory are LibTorch's. Private to this room: chosen where the values
// are not on the CPU. Labels, masks, positions and ranges may lie on either side.
#pragma once
#include <optional>

#include "ops/linear_cross_entropy.h"
#include "ops/linear_distance.h"
#include "ops/linear_soft_cross_entropy.h"
#include "ops/rope.h"
#include "tensor/tensor.h"

namespace sf::ops::plain {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
at::Tensor rms_norm_centred(const at::Tensor& x, const at::Tensor& weight, double eps, int64_t groups);
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
at::Tensor rotary(const at::Tensor& x, const RotaryTable& table, const at::Tensor& positions);

// q: [B, nH, S, hd]; k, v: [B, nKV, T, hd]; diagonals: [n, B, nKV, S, hd] or nothing; ranges: I64 [2, B, S] on the
// host, first and one past the last visible key of each row. Causal and nothing else: LibTorch's fused form; otherwise
// the scores of all rows are held: O(S T) memory.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const std::optional<at::Tensor>& k_diagonal, const std::optional<at::Tensor>& v_diagonal,
                     const at::Tensor& ranges, double scale);

// Logits are held for a block of rows at a time; gradients are found at once, as by the kernels.
LinearCrossEntropy linear_cross_entropy(const at::Tensor& x, const at::Tensor& w, const at::Tensor& labels,
                                        const at::Tensor& weight);
LinearSoftCrossEntropy linear_soft_cross_entropy(const at::Tensor& x, const at::Tensor& w, const SoftTeacher& teacher,
                                                 const at::Tensor& weight);

LinearDistance linear_distance(const std::vector<LogitPart>& parts, const DistanceJudge& judge);

// What a row has seen of the vocabulary so far, as in kernels::LabelRow; [R] each.
struct LabelRows {
  at::Tensor top, total, at_label, argmax;
  at::Tensor sum, at_labels;  // [R, H] as in VocabularyHead; undefined: no gradient is asked for
};
LabelRows nothing_seen(const at::Tensor& x, bool gradient);
// x: [R, H], rows: [C, H], labels: [R]; `first` of the chunk. Returns the new state; the old one stays valid.
LabelRows see(const LabelRows& before, const at::Tensor& x, const at::Tensor& rows, const at::Tensor& labels,
              int64_t first);
at::Tensor nll(const LabelRows& rows);
at::Tensor gradient(const LabelRows& rows, const at::Tensor& upstream);  // F32 [R, H]; upstream: [R]

}  // namespace sf::ops::plain
