// SPDX-License-Identifier: Apache-2.0
#include "plan/shadow_experts.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace sf::plan {
namespace {

// The weights of the chosen experts, flat [N * chosen], in the type of the scores.
Shade chosen_weights(Tape& tape, ShadowOps& ops, const Shade& scores, const arch::Experts& experts) {
  const int64_t tokens = scores.shape[0];
  const Shape some{tokens, experts.chosen}, column{tokens, 1}, flat{tokens * experts.chosen};
  Shade weight = ops.top_k(ops.from_result(ops.wide(scores)), experts.chosen);
  if (experts.normalise) {
    Shades sum{tape.make(column, Dtype::kF32)}, quotient{tape.make(some, Dtype::kF32)};
    tape.record(sum, {weight}, [some](const Shades& gradients) -> Shades {
      Shade stretched = gradients[0];
      stretched.shape = some;
      return {stretched};
    });
    tape.record(quotient, {weight, sum[0]},
                [&tape, some, column, over = weight.detached(), under = sum[0].detached()](const Shades&) -> Shades {
                  Shade above = tape.make(some, Dtype::kF32), below;
                  {
                    Shade negative = tape.make(some, Dtype::kF32), once = tape.make(some, Dtype::kF32);
                    Shade twice = tape.make(some, Dtype::kF32), product = tape.make(some, Dtype::kF32);
                    below = tape.make(column, Dtype::kF32);
                  }
                  return {above, below};
                });
    weight = quotient[0];
  }
  if (scores.type == Dtype::kF32) return ops.reshape(weight, flat);
  Shades narrow{tape.make(flat, scores.type)};
  tape.record(narrow, {weight}, [&tape, some](const Shades&) -> Shades { return {tape.make(some, Dtype::kF32)}; });
  return narrow[0];
}

// Rows of x, or places of the flat weights.
Shade selected(Tape& tape, const Shade& from, const Shade& index) {
  Shape shape = from.shape;
  shape[0] = index.shape[0];
  Shades out{tape.make(shape, from.type)};
  tape.record(out, {from}, [&tape, index, whole = from.shape, type = from.type](const Shades&) -> Shades {
    return {tape.make(whole, type)};
  });
  return out[0];
}

// A view of columns, whose gradient comes back among zeros.
Shade columns(ShadowOps& ops, const Shade& x, int64_t width) {
  Shade part = ops.narrow(x, {x.shape[0], width});
  part.dense = false;
  return part;
}

// Added in place to rows of the sum.
void add_rows(Tape& tape, Shade& sum, const Shade& rows, const Shade& index) {
  Shades added{sum.detached()};
  // LibTorch keeps the rows themselves, for their shape.
  tape.record(added, {sum, rows}, [&tape, index, kept = rows.detached()](const Shades& gradients) -> Shades {
    return {gradients[0], tape.make(kept.shape, kept.type)};
  });
  sum = added[0];
}

Shades unbound(Tape& tape, const Shade& fused, size_t count, Shape one, bool dense) {
  Shade view = fused.detached().as(std::move(one));
  view.dense = dense;
  Shades out(count, view);
  tape.record(out, {fused}, [&tape, whole = fused.shape, type = fused.type](const Shades& gradients) -> Shades {
    Shades zeros;  // for each expert that no token chose
    for (const Shade& gradient : gradients)
      if (!gradient.memory) zeros.push_back(tape.make({}, type));
    return {tape.make(whole, type)};
  });
  return out;
}

}  // namespace

std::vector<Spread> widest_spreads(const arch::Experts& experts, int64_t tokens) {
  const auto count = static_cast<size_t>(experts.count), chosen = static_cast<size_t>(experts.chosen);
  Spread even(count), first(count, 1);
  for (size_t i = 0; i < count; ++i) {
    const auto all = static_cast<size_t>(tokens * experts.chosen);
    even[i] = static_cast<int64_t>(all / count + (i < all % count));
  }
  std::fill_n(first.begin(), chosen, tokens);
  return {even, first, {first.rbegin(), first.rend()}};
}

ShadowBank::ShadowBank(Tape& tape, ShadowOps& ops, const Shade& weight)
    : tape_(tape),
      ops_(ops),
      weight_(unbound(tape, weight, static_cast<size_t>(weight.shape[0]), {weight.shape[1], weight.shape[2]}, true)) {}

void ShadowBank::adapt(const Shade& a, const Shade& b, const arch::Adapter& adapter) {
  a_ = unbound(tape_, a, weight_.size(), {adapter.rank, adapter.in}, true);
  b_ = unbound(tape_, b, weight_.size(), {adapter.out, adapter.rank}, false);
}

Shade ShadowBank::apply(size_t expert, const Shade& x) const {
  Shade y = ops_.linear(x, weight_[expert]);
  if (a_.empty()) return y;
  return ops_.add(y, ops_.scaled(ops_.linear(ops_.linear(x, a_[expert]), b_[expert])));
}

Shade ShadowExperts::mix(Tape& tape, ShadowOps& ops, const Shade& x, const Shade& scores, const Spread& spread) const {
  SF_ASSERT(std::ssize(spread) == experts.count);
  Shade weight = chosen_weights(tape, ops, scores, experts);
  Shade sum = tape.make(x.shape, x.type);
  for (size_t e = 0; e < spread.size(); ++e) {
    if (spread[e] == 0) continue;
    Shade row = tape.make({spread[e]}, Dtype::kI64);
    Shade both = gate_up.apply(e, selected(tape, x, row));
    Shade inner = ops.swiglu(columns(ops, both, experts.width), columns(ops, both, experts.width));
    both = {};
    Shade out = down.apply(e, inner);
    inner = {};
    Shade by = selected(tape, weight, tape.make({spread[e]}, Dtype::kI64));
    add_rows(tape, sum, ops.times(out, ops.reshape(by, {spread[e], 1}), out.shape), row);
  }
  return sum;
}

}  // namespace sf::plan
