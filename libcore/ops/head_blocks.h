// SPDX-License-Identifier: Apache-2.0
// A vocabulary head by blocks of rows: logits live for one block and become their own gradient in place. Behind the
// losses that are fused with their head; private to this room.
#pragma once
#include <functional>
#include <vector>

#include "tensor/tensor.h"

namespace sf::ops {

// What logits are a sum of: x w^T, and whose gradients are wanted.
struct HeadPart {
  at::Tensor x, w;  // [N, K], [V, K] of one dtype, fp32 or bf16, dense, on the CPU; K is the part's own
  bool want_x = false, want_w = false;
};

// Sees the logits z (F32 [count, V]) of rows [row, row + count). With `gradient` it leaves the loss's gradient in their
// place, in the parts' type from each row's first byte on.
using Judge = std::function<void(int64_t row, int64_t count, float* z, bool gradient)>;

// Gradients for an upstream scalar of 1; undefined where none is wanted.
struct HeadGradients {
  at::Tensor x, w;
};

// Parts of equal N, V and dtype; of each its gradients. Blocks of at most 64 MiB of logits (but 16 rows), in ascending
// order; where they are cut changes no bit. Logits and sums are fp32; each gradient is rounded to the dtype once.
std::vector<HeadGradients> head_by_blocks(const std::vector<HeadPart>& parts, const Judge& judge);

// F32 [N, V]: x w^T, as head_by_blocks() makes it, beside no more than a panel of w.
at::Tensor head_logits(const at::Tensor& x, const at::Tensor& w);

// `loss`, whose gradients in x and w are known: backward hands them out, times the upstream scalar, and passes it on to
// what `loss` carries already.
at::Tensor carry(const at::Tensor& x, const at::Tensor& w, const at::Tensor& loss, const HeadGradients& gradients);

}  // namespace sf::ops
