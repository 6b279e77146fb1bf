// SPDX-License-Identifier: Apache-2.0
#include "gen/recurrent.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "base/error.h"
#include "base/fault.h"

namespace sf::gen {
namespace {

at::Tensor picked(const at::Tensor& from, std::span<const int32_t> rows) {
  at::Tensor index = at::empty({std::ssize(rows)}, at::kLong);
  for (size_t i = 0; i < rows.size(); ++i) index.mutable_data_ptr<int64_t>()[i] = rows[i];
  return from.index_select(0, index);
}

DeltaRows joined(const DeltaRows& a, const DeltaRows& b) {
  if (a.count() == 0) return b;
  return {at::cat({a.inputs, b.inputs}), at::cat({a.decay, b.decay}), at::cat({a.beta, b.beta})};
}

}  // namespace

DeltaRows DeltaRows::narrow(int64_t first, int64_t count) const {
  return {inputs.narrow(0, first, count), decay.narrow(0, first, count), beta.narrow(0, first, count)};
}

DeltaRows DeltaRows::select(std::span<const int32_t> rows) const {
  return {picked(inputs, rows), picked(decay, rows), picked(beta, rows)};
}

Recurrent::Recurrent(const ops::DeltaHeads& heads, const at::Tensor& weight)
    : heads_(heads),
      weight_(weight),
      state_(at::zeros({heads.value_heads, heads.key_dim, heads.value_dim}, at::kFloat)),
      history_(at::zeros({weight.size(1) - 1, heads.channels()}, weight.options())) {}

Recurrent Recurrent::snapshot() const {
  Recurrent copy = *this;
  copy.state_ = state_.clone(), copy.history_ = history_.clone();
  return copy;
}

at::Tensor Recurrent::run(const DeltaRows& rows, at::Tensor& state) const {
  const int64_t before = history_.size(0);
  at::Tensor mixed = ops::conv_silu(at::cat({history_, rows.inputs}).unsqueeze(0), weight_);
  return ops::delta_steps(mixed.narrow(1, before, rows.count()), rows.decay.unsqueeze(0), rows.beta.unsqueeze(0),
                          heads_, state)
      .squeeze(0);
}

void Recurrent::take(const DeltaRows& rows) {
  const int64_t before = history_.size(0);
  history_ = at::cat({history_, rows.inputs}).narrow(0, rows.count(), before).clone();
  length_ += rows.count();
}

void Recurrent::settle(int64_t first) {
  if (first == 0) {
    state_.zero_(), history_.zero_();
    back_ = {}, tree_ = false, length_ = 0;
    return;
  }
  const int64_t count = first - length_;
  SF_CHECK(count >= 0 && count <= back_.count() && (count == 0 || !tree_), Exit::kSoftware,
           "a sequence goes on at position {}, but its recurrent states are those of {} and {} rows were kept back",
           first, length_, back_.count());
  if (count > 0) {
    const DeltaRows kept = fault("gen.rejected_rows_count") ? back_ : back_.narrow(0, count);
    run(kept, state_);
    take(kept);
    length_ = first;
  }
  back_ = {}, tree_ = false;
}

at::Tensor Recurrent::advance(const DeltaRows& rows) {
  SF_ASSERT(back_.count() == 0);
  if (rows.count() > 1 && rows.count() <= kMostKeptBack) {
    back_ = rows;
    at::Tensor ahead = state_.clone();
    return run(rows, ahead);
  }
  at::Tensor out = run(rows, state_);
  take(rows);
  return out;
}

at::Tensor Recurrent::branch(const DeltaRows& rows, std::span<const std::vector<int32_t>> paths) {
  SF_ASSERT(tree_ || back_.count() == 0);
  back_ = joined(back_, rows), tree_ = true;
  std::vector<at::Tensor> out;
  for (const std::vector<int32_t>& path : paths) {
    at::Tensor ahead = state_.clone();
    out.push_back(run(back_.select(path), ahead).narrow(0, std::ssize(path) - 1, 1));
  }
  return at::cat(out);
}

void Recurrent::keep(std::span<const int32_t> path) {
  back_ = path.empty() || !tree_ ? DeltaRows() : back_.select(path);
  tree_ = false;
}

}  // namespace sf::gen
