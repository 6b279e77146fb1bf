// SPDX-License-Identifier: Apache-2.0
// Cross-entropy, row by row in fp32; against a soft teacher: loss = -sum P log_softmax(z), P = softmax(t).
#pragma once
#include <cstddef>
#include <cstdint>

#include "sf_kernels/parallel.h"
#include "sf_kernels/rows.h"

namespace sf::kernels {

struct SoftRow {
  float loss = 0, nll = 0;  // nll: -sum P log_softmax(z); loss: weight * nll
  float acceptance = 0;     // sum of min(softmax(z), e^(t - target_lse))
  int32_t argmax = 0;       // of z; the lowest index wins
};

struct SoftLoss {
  size_t rows = 0, width = 0;
  float* z = nullptr;                 // [rows, width]
  const float* t = nullptr;           // [.., width]
  const int64_t* teacher = nullptr;   // [rows]: which row of t, and of target_lse
  const float* target_lse = nullptr;  // null: no acceptance
  const float* weight = nullptr;      // [rows]; of rows of weight 0 argmax alone is told
  // With `gradient`, row r of z ends as weight[r] * (softmax(z) - P) in this type, from the row's first byte on: rows
  // stay width * 4 bytes apart.
  bool gradient = false;
  Type type = Type::kF32;
};
void soft_loss(const SoftLoss& op, SoftRow* out, const Parallel& parallel = {});

// Cross-entropy against one label a row, the logits coming chunk by chunk of the vocabulary: what a row has seen so
// far.
struct LabelRow {
  float top = -__builtin_inff(), total = 0;  // maximum, and the sum of e^(z - maximum)
  float at_label = 0;                        // the label's logit, once its chunk was seen
  int32_t argmax = 0;                        // the lowest id wins
};
struct LabelLoss {
  size_t rows = 0, width = 0;
  float* z = nullptr;              // [rows, width]: ids [first, first + width)
  const int64_t* label = nullptr;  // [rows]
  int64_t first = 0;
  // [rows], or null. With it z ends as e^(z - maximum so far), 0 at the label, and shrink[r] is what e^(-maximum) of
  // the chunks before has become worth: sums over them times it are sums under the new maximum.
  float* shrink = nullptr;
};
// Adds a chunk to what the rows have seen; chunks come in ascending order of ids.
void label_loss(const LabelLoss& op, LabelRow* seen, const Parallel& parallel = {});

// Cross-entropy against one label a row: loss = weight * (log-sum-exp(z) - z[label]).
struct HardRow {
  float loss = 0, nll = 0, lse = 0;  // nll: log-sum-exp(z) - z[label]; loss: weight * nll
  float entropy = 0;                 // of softmax(z), in nats
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

// Cross-entropy against one label a row, and the L1 distance of the row's soft-max p from a teacher's q = softmax(t):
// loss = nll_weight * nll + l1_weight * sum |p - q|.
struct DistanceRow {
  float loss = 0, nll = 0, l1 = 0;
  float top = 0, teacher_top = 0;          // the largest of p, of q
  int32_t argmax = 0, teacher_argmax = 0;  // of z, of t; the lowest index wins
};
struct DistanceLoss {
  size_t rows = 0, width = 0;
  float* z = nullptr;              // [rows, width]; scratch afterwards
  float* t = nullptr;              // [rows, width], scratch as well; null: no teacher, l1 and what is its are 0
  const int64_t* label = nullptr;  // [rows], each in [0, width)
  const float *nll_weight = nullptr, *l1_weight = nullptr;  // [rows]
  // With `gradient`, row r of z ends as the loss's gradient in this type, from the row's first byte on: rows stay
  // width * 4 bytes apart. |p - q| has no slope where they are equal.
  bool gradient = false;
  Type type = Type::kF32;
};
void distance_loss(const DistanceLoss& op, DistanceRow* out, const Parallel& parallel = {});

namespace reference {
void distance_loss(const DistanceLoss& op, DistanceRow* out);
void label_loss(const LabelLoss& op, LabelRow* seen);
void hard_loss(const HardLoss& op, HardRow* out);
void soft_loss(const SoftLoss& op, SoftRow* out);
}  // namespace reference

}  // namespace sf::kernels
