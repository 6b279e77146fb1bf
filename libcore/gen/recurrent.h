// SPDX-License-Identifier: Apache-2.0
// What one delta net layer keeps of one sequence (models_text_scoring 3.3, 3.6): a state, the convolution's last
// inputs, and what rows that may still be taken back have read, for neither can be rolled back.
#pragma once
#include <cstdint>
#include <span>

#include "ops/delta_rule.h"
#include "tensor/tensor.h"

namespace sf::gen {

// Of rows [n, ..]: what is convolved, and each value head's decay and beta.
struct DeltaRows {
  at::Tensor inputs, decay, beta;  // [n, channels] in the compute dtype; F32 [n, value_heads]

  int64_t count() const { return inputs.defined() ? inputs.size(0) : 0; }
  DeltaRows narrow(int64_t first, int64_t count) const;
  DeltaRows select(std::span<const int32_t> rows) const;
};

class Recurrent {
 public:
  // weight: [channels, taps], of the convolution; its memory is shared.
  Recurrent(const ops::DeltaHeads& heads, const at::Tensor& weight);

  // The sequence goes on at position `first`: of the rows kept back, those before it count, the others never were.
  // Position 0: it begins. kSoftware if that cannot be told any more.
  void settle(int64_t first);
  // Rows at the settled length -> [n, value_heads, value_dim]; the same bits row by row and together. One row, or more
  // than kMostKeptBack, count at once; others are kept back until settle() says how many of them do.
  at::Tensor advance(const DeltaRows& rows);
  // Nodes of a tree behind the settled length, one row each; paths[i]: nodes from the trunk to the i-th of `rows`,
  // which are numbered on from those there are.
  at::Tensor branch(const DeltaRows& rows, std::span<const std::vector<int32_t>> paths);
  // The nodes of a path become rows kept back in their order; the rest of the tree goes. Empty: all of it.
  void keep(std::span<const int32_t> path);

  Recurrent snapshot() const;  // shares no memory that changes

  const at::Tensor& state() const { return state_; }      // F32 [value_heads, key_dim, value_dim]
  const at::Tensor& history() const { return history_; }  // [taps - 1, channels], the newest last
  int64_t length() const { return length_; }              // positions in them

  static constexpr int64_t kMostKeptBack = 64;  // rows of a verification

 private:
  at::Tensor run(const DeltaRows& rows, at::Tensor& state) const;
  void take(const DeltaRows& rows);

  ops::DeltaHeads heads_;
  at::Tensor weight_, state_, history_;
  DeltaRows back_;
  bool tree_ = false;  // back_ holds nodes
  int64_t length_ = 0;
};

}  // namespace sf::gen
