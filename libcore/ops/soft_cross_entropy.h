// SPDX-License-Identifier: Apache-2.0
// The loss of EAGLE3 against the target's distribution on the draft vocabulary (eagle_dflash 1.4, 1.5).
#pragma once
#include "tensor/tensor.h"

namespace sf::ops {

struct SoftCrossEntropy {
  at::Tensor loss;    // F32 scalar: sum over rows of mask * -(P . log_softmax(z)), P = softmax(t). Differentiable in z
  at::Tensor argmax;  // I64 [N] of z, the lowest id wins a tie
  at::Tensor acceptance;  // F32 [N]: sum over v of min(softmax(z), exp(t - target_lse)); 0 where mask is 0
};

// z: draft logits [N, Vd] fp32 or bf16; t: the target's logits on the draft vocabulary [N, Vd] fp32 or bf16, no
// gradient; target_lse: F32 [N], log-sum-exp over the whole vocabulary; mask: F32 [N]. All mathematics in fp32, sums
// over rows in row order in fp64: the result does not depend on threads. With want_metrics false, argmax and acceptance
// are undefined.
SoftCrossEntropy soft_cross_entropy(const at::Tensor& z, const at::Tensor& t, const at::Tensor& target_lse,
                                    const at::Tensor& mask, bool want_metrics = true);

}  // namespace sf::ops
