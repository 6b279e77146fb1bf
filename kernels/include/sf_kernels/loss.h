// SPDX-License-Identifier: Apache-2.0
// Cross-entropy, row by row in fp32; against a soft teacher: loss = -sum P log_softmax(z), P = softmax(t).
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

// Cross-entropy against one label a row, the logits coming chunk by chunk of the vocabulary: what a row has seen so
// far.
struct LabelRow {
  float top = -__builtin_inff(), total = 0;  // maximum, and the sum of e^(z - maximum)
  float at_label = 0;                        // the label's logit, once its chunk was seen
  int32_t argmax = 0;                        // the lowest id wins
};
struct LabelLoss {
  size_t rows = 0, width = 0;
  const float* z = nullptr;        // [rows, width]: ids [first, first + width)
  const int64_t* label = nullptr;  // [rows]
  int64_t first = 0;
};
// Adds a chunk to what the rows have seen; chunks come in ascending order of ids.
void label_loss(const LabelLoss& op, LabelRow* seen, const Parallel& parallel = {});
// dz[r] = scale[r] * (softmax of the row at these ids - [id is the label]); `seen` is of the whole vocabulary. dz may
// be z.
void label_loss_backward(const LabelLoss& op, const LabelRow* seen, const float* scale, float* dz,
                         const Parallel& parallel = {});

// Cross-entropy against one label a row: loss = weight * (log-sum-exp(z) - z[label]).
struct HardRow {
  float loss = 0, nll = 0, lse = 0;  // nll: log-sum-exp(z) - z[label]; loss: weight * nll
  int32_t argmax = 0;                // the lowest index wins
};
struct HardLoss {
  size_t rows = 0, width = 0;
  float* z = nullptr;              // [rows, width]
  const int64_t* label = nullptr;  // [rows], each in [0, width)
  const float* weight = nullptr;   // [rows]
  // With `gradient`, row r of z ends as weight[r] * (softmax(z) - onehot(label)) in this type, from the row's first
  // byte on: rows stay width * 4 bytes apart.
  bool gradient = false;
  Type type = Type::kF32;
};
void hard_loss(const HardLoss& op, HardRow* out, const Parallel& parallel = {});

namespace reference {
void label_loss(const LabelLoss& op, LabelRow* seen);
void hard_loss(const HardLoss& op, HardRow* out);
void soft_loss(const SoftLoss& op, SoftRow* out);
}  // namespace reference

}  // namespace sf::kernels
