// SPDX-License-Identifier: Apache-2.0
// A draft's head and its loss against the target's distribution on the draft vocabulary in one (eagle_dflash 1.4, 1.5):
// both sides' logits live for a block of rows at a time.
#pragma once
#include "tensor/tensor.h"

namespace sf::ops {

// What the rows of a draft are judged by; no gradient.
struct SoftTeacher {
  at::Tensor states;  // [L, Ht]: P = softmax(states head^T)
  at::Tensor head;    // [Vd, Ht]: the target's head on the draft vocabulary, of the states' dtype
  at::Tensor lse;     // F32 [L]: log-sum-exp over the target's whole vocabulary; undefined: no acceptance is asked
  at::Tensor row_of;  // I64 [N], on the host: the state that each row is judged by; several may share one
};

struct LinearSoftCrossEntropy {
  at::Tensor loss;        // F32 scalar: sum over rows of weight * nll. Differentiable in x and w
  at::Tensor nll;         // F32 [N]: -(P . log_softmax(x w^T)), 0 where weight is 0
  at::Tensor argmax;      // I64 [N] of the logits, the lowest id wins a tie
  at::Tensor acceptance;  // F32 [N]: sum over v of min(softmax(x w^T), exp(t - lse)); 0 where weight is 0
};

// x: [N, K], w: [Vd, K] of one dtype, fp32 or bf16; weight: F32 [N], no gradient. Numbers and gradients as those of
// linear_cross_entropy(): fp32 inside, found at once, whatever the threads. Rows that share a state are taken together,
// whose logits are made once.
LinearSoftCrossEntropy linear_soft_cross_entropy(const at::Tensor& x, const at::Tensor& w, const SoftTeacher& teacher,
                                                 const at::Tensor& weight);

}  // namespace sf::ops
