// SPDX-License-Identifier: Apache-2.0
// The operators of room ops and those of LibTorch that models use, as shadows: what each allocates, keeps and gives
// back. A change there that moves memory is a change here; tests hold both against the allocator.
#pragma once
#include <functional>
#include <utility>
#include <vector>

#include "plan/tape.h"

namespace sf::plan {

using ShadowFunction = std::function<Shades(const Shades& inputs)>;

class ShadowOps {
 public:
  explicit ShadowOps(Tape& tape) : tape_(tape) {}

  // [.., K] x [N, K]: the result is fp32, then of the type; the weight is packed for the time of the product.
  Shade linear(const Shade& x, const Shade& weight, const Shade* bias = nullptr);
  Shade norm(const Shade& x, const Shade& weight);
  Shade rotary(const Shade& x, bool own_positions = true);  // any shape; saves positions, if they are its own
  Shade swiglu(const Shade& gate, const Shade& up);
  // q [B, heads, S, hd], keys and values [B, kv, S, hd] each: the first block, then diagonals.
  Shade attention(const Shade& q, const Shades& keys, const Shades& values);
  // q [heads, N K, hd] of N blocks of K against keys and values [kv, C, hd] before them and [kv, N K, hd] inside.
  Shade attention_of_blocks(const Shade& q, const Shade& k_before, const Shade& v_before, const Shade& k,
                            const Shade& v, int64_t blocks);
  // The same in a layer with a window: offset by offset.
  Shade windowed_blocks(const Shade& q, const Shade& k_before, const Shade& v_before, const Shade& k, const Shade& v,
                        int64_t blocks);
  // x [B, S, C] and a convolution of `taps` over S.
  Shade conv_silu(const Shade& x, const Shade& weight, int64_t taps);
  // mixed [B, S, channels], decay and beta F32 [B, S, heads]: -> [B, S, values]; `state`: floats of one state.
  Shade delta_rule(const Shade& mixed, const Shade& decay, const Shade& beta, int64_t values, int64_t state);
  Shade embedding(const Shade& table, Shape ids);  // -> [ids.., H]
  // x [N, H] and a vocabulary [V, H], by chunks of `chunk` rows: -> nll F32 [N]; top-1 ids are made on the way.
  Shade vocabulary_head(const Shade& x, int64_t vocab, int64_t chunk);
  // The parts of it, where a table is exchanged: what is kept for the gradient, nll, and later the gradient of x.
  Shades head_state(const Shade& x);
  Shade head_loss(const Shades& state, int64_t vocab, int64_t chunk);
  Shade head_gradient(const Shades& state);
  Shade linear_cross_entropy(const Shade& x, const Shade& table);  // [N, H], [V, H] -> scalar
  static int64_t head_block(int64_t rows, int64_t vocab);          // rows whose logits live at a time
  // [N, H], [V, H] -> scalar; of the teacher's states, [L, Ht], a block asks `teachers` at most.
  Shade linear_soft_cross_entropy(const Shade& x, const Shade& table, int64_t teacher_width, int64_t teachers);
  // x and table of each part -> scalar; the teacher asks the first part's table.
  Shade linear_distance(const std::vector<std::pair<Shade, Shade>>& parts, bool teacher);
  Shade acceptance(const Shade& logits, const Shade& teacher);  // [N, V] each -> F32 [N]

  Shade index_select(const Shade& x, int64_t rows);             // dim 0; saves an index
  Shade index_copy_into_zeros(const Shade& rows, int64_t all);  // [n, w] -> [all, w]
  Shade cat_columns(const Shades& parts);                       // dim 1
  Shade cat_rows(const Shades& parts);                          // dim 0
  Shades split_rows(const Shade& x, const std::vector<int64_t>& rows);
  Shade add(const Shade& a, const Shade& b);
  Shade scaled(const Shade& x);  // by a tensor of its extents, or a scalar one
  Shade summed(const Shade& x);  // to a scalar
  // [B, S, heads, hd] as [B, heads, S, hd] and back: views forward, a copy where the gradient comes back dense.
  Shade split_heads(const Shade& x, Shape heads_shape);
  Shade merge_heads(const Shade& x, Shape merged);
  Shade transposed(const Shade& x);            // a view whose gradient does not lie dense
  Shade narrow(const Shade& x, Shape part);    // a part of the rows of a dense tensor
  Shade columns(const Shade& x, Shape part);   // a part of its last extent: a view that does not lie dense
  Shade reshape(const Shade& x, Shape other);  // a view of what is dense, else a copy

  Shade dense(const Shade& x);  // a copy if it is not

  // LibTorch's mathematics, element by element (shadow_math.cpp).
  Shade wide(const Shade& x);         // to fp32
  Shade from_result(const Shade& x);  // sigmoid, tanh, exp, soft-max and its logarithm: the result is kept
  Shade from_input(const Shade& x, int made_on_the_way = 0);  // silu, abs: the input is kept
  // Of extents `shape`, to which either may be stretched.
  Shade plus(const Shade& a, const Shade& b, Shape shape);
  Shade times(const Shade& a, const Shade& b, Shape shape);
  Shade summed_to_wide(const Shade& x, Shape shape);  // sums in fp32
  Shade gather(const Shade& x, int64_t columns);      // [n, V] -> [n, columns]
  Shade top_k(const Shade& x, int64_t count);         // [n, V] -> [n, count]; its ids too
  Shade joined(const Shades& parts, Shape shape);     // side by side: their gradients are views
  Shades chunks(const Shade& x, int64_t count);       // of dim 1
  // model::in_slices, ops::recompute: what `f` makes lives twice, each time no longer than it runs.
  Shades recomputed(const Shades& inputs, ShadowFunction f);
  Shades in_slices(const Shades& rows, const Shades& whole, int64_t slice, const ShadowFunction& f);

 private:
  // Of each part's x and table the gradients, one after the other.
  Shades head_by_blocks(const std::vector<std::pair<Shade, Shade>>& parts, const std::function<void()>& judge);
  Shade product(int64_t m, int64_t n, int64_t k, Dtype type);
  Shade prepared(const Shade& x);
  Shade attend(const Shades& inputs);
  Shade seen_in_block(const Shade& x, int64_t blocks);
  Shade stacked(const Shades& parts);
  Shades by_offset(const Shade& x, int64_t block);
  Shade summed_to(Shade gradient, const Shade& to);

  Tape& tape_;
};

}  // namespace sf::plan
