// SPDX-License-Identifier: Apache-2.0
// The vocabulary head and its loss in one: logits live for a block of rows at a time and become their own gradient.
#pragma once
#include "tensor/tensor.h"

namespace sf::ops {

struct LinearCrossEntropy {
  at::Tensor loss;     // F32 scalar: sum over rows of weight * -log_softmax(x w^T)[label]. Differentiable in x and w
  at::Tensor nll;      // F32 [N]: -log_softmax(x w^T)[label], 0 where weight is 0
  at::Tensor argmax;   // I64 [N] of the logits, the lowest id wins a tie
  at::Tensor entropy;  // F32 [N] of softmax(x w^T), in nats; 0 where weight is 0
};

// x: [N, K], w: [V, K] of one dtype, fp32 or bf16; labels: I64 [N], each in [0, V) (kSoftware otherwise); weight: F32
// [N], no gradient. Logits, soft-max and sums are fp32; the logits' gradient is rounded to x's dtype once. The
// gradients are computed at once, where they are wanted; backward only hands them out (times the upstream scalar).
// Equal to linear() followed by a cross-entropy but for that; rows are cut into blocks of at most 64 MiB of logits,
// which changes no bit. Sums over rows in row order; the result does not depend on threads.
LinearCrossEntropy linear_cross_entropy(const at::Tensor& x, const at::Tensor& w, const at::Tensor& labels,
                                        const at::Tensor& weight);

}  // namespace sf::ops
