// SPDX-License-Identifier: Apache-2.0
// A draft's logits, their cross-entropy against labels and the L1 distance of their soft-max from the target's in one
// (eagle_dflash 3): both sides' logits live for a block of rows at a time and become their own gradient.
#pragma once
#include <vector>

#include "tensor/tensor.h"

namespace sf::ops {

// The logits are the sum of x w^T over parts, of equal N and V; each has its own inner extent.
struct LogitPart {
  at::Tensor x, w;  // [N, K], [V, K], of one dtype, fp32 or bf16
};

// What rows are judged by; no gradient.
struct DistanceJudge {
  at::Tensor labels;                 // I64 [N], each in [0, V) (kSoftware otherwise)
  at::Tensor nll_weight, l1_weight;  // F32 [N]
  at::Tensor states;                 // [N, K] of the first part: q = softmax(states w^T); undefined: no teacher
};

struct LinearDistance {
  at::Tensor loss;                    // F32 scalar: sum over rows of nll_weight * nll + l1_weight * l1. Differentiable
                                      // in every x and w
  at::Tensor nll, l1;                 // F32 [N]: -log p[label]; sum |p - q|, 0 without a teacher
  at::Tensor top, teacher_top;        // F32 [N]: the largest probability of p, of q (0 without a teacher)
  at::Tensor argmax, teacher_argmax;  // I64 [N], the lowest id wins a tie
};

// p = softmax of the logits. Logits, soft-max and sums are fp32; the logits' gradient is rounded to the parts' dtype
// once. The gradients are computed at once, where they are wanted; backward only hands them out (times the upstream
// scalar). |p - q| has no slope where they are equal. Blocks of at most 64 MiB of logits a side; neither blocks nor
// threads change a bit.
LinearDistance linear_distance(const std::vector<LogitPart>& parts, const DistanceJudge& judge);

}  // namespace sf::ops
