// SPDX-License-Identifier: Apache-2.0
// The operators of room ops and those of LibTorch that models use, as shadows: what each allocates, keeps and gives
// back. A change there that moves memory is a change here; tests hold both against the allocator.
#pragma once
#include <vector>

#include "plan/tape.h"

namespace sf::plan {

class ShadowOps {
 public:
  explicit ShadowOps(Tape& tape) : tape_(tape) {}

  // [.., K] x [N, K]: LibTorch's result is fp32, then of the type; the weight is packed for the time of the product.
  Shade linear(const Shade& x, const Shade& weight);
  Shade norm(const Shade& x, const Shade& weight);
  Shade rotary(const Shade& x);  // any shape; saves a copy of the positions
  Shade swiglu(const Shade& gate, const Shade& up);
  // q [B, heads, S, hd], keys and values [B, kv, S, hd] each: the first block, then diagonals.
  Shade attention(const Shade& q, const Shades& keys, const Shades& values);
  Shade soft_cross_entropy(const Shade& logits, const Shade& teacher);  // [N, V] each -> scalar

  Shade index_select(const Shade& x, int64_t rows);             // dim 0; saves an index
  Shade index_copy_into_zeros(const Shade& rows, int64_t all);  // [n, w] -> [all, w]
  Shade cat_columns(const Shades& parts);                       // dim 1
  Shade cat_rows(const Shades& parts);                          // dim 0
  Shades split_rows(const Shade& x, const std::vector<int64_t>& rows);
  Shade add(const Shade& a, const Shade& b);
  Shade scaled(const Shade& x);  // by a scalar tensor
  // [B, S, heads, hd] as [B, heads, S, hd] and back: views forward, a copy where the gradient comes back dense.
  Shade split_heads(const Shade& x, Shape heads_shape);
  Shade merge_heads(const Shade& x, Shape merged);

  Shade dense(const Shade& x);  // a copy if it is not

 private:
  Shade product(int64_t m, int64_t n, int64_t k, Dtype type);
  Shade prepared(const Shade& x);

  Tape& tape_;
};

}  // namespace sf::plan
