// SPDX-License-Identifier: Apache-2.0
// Cross-entropy against a soft teacher, row by row in fp32: loss = -sum P log_softmax(z), P = softmax(t).
#pragma once
#include <cstddef>
#include <cstdint>

#include "sf_kernels/parallel.h"
#include "sf_kernels/rows.h"

namespace sf::kernels {

// What a row leaves behind: its loss and the statistics its gradient needs (weight 0: all zero but argmax).
struct SoftRow {
  float loss = 0;
  float z_top = 0, z_total = 1, t_top = 0, t_total = 1;  // maxima, and sums of e^(value - maximum)
  float acceptance = 0;                                  // sum of min(softmax(z), e^(t - target_lse))
  int32_t argmax = 0;                                    // of z; the lowest index wins
};

struct SoftLoss {
  Type z_type = Type::kF32, t_type = Type::kF32;
  size_t rows = 0, width = 0;
  const void* z = nullptr;            // [rows, width]
  const void* t = nullptr;            // [rows, width]
  const float* target_lse = nullptr;  // [rows]; null: no acceptance
  const float* weight = nullptr;      // [rows]; rows of weight 0 are skipped but for argmax
};
void soft_loss(const SoftLoss& op, SoftRow* out, const Parallel& parallel = {});
// dz[r] = scale * weight[r] * (softmax(z) - softmax(t)), in z's type.
void soft_loss_backward(const SoftLoss& op, const SoftRow* rows, float scale, void* dz, const Parallel& parallel = {});

namespace reference {
void soft_loss(const SoftLoss& op, SoftRow* out);
}

}  // namespace sf::kernels
