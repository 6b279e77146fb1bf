// SPDX-License-Identifier: Apache-2.0
#include "model/rotary.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/error.h"
#include "tensor/device.h"

namespace sf::model {
namespace {

// Beyond max_positions every length has its own table; a few serve the layers of the forwards in flight.
constexpr size_t kLongTables = 8;
constexpr int64_t kFirstRows = 512;

}  // namespace

Rotary::Rotary(const arch::Rope& rope, int64_t rotary_dims, int64_t max_positions, bool interleaved)
    : rope_(rope), dims_(rotary_dims), max_positions_(max_positions), interleaved_(interleaved) {
  SF_CHECK(rotary_dims > 0 && rotary_dims % 2 == 0, Exit::kConfig,
           "rotary dimensions must be even and positive, found {}", rotary_dims);
  table_ = make(1, kFirstRows);
}

ops::RotaryTable Rotary::make(int64_t length, int64_t rows) const {
  arch::RopeTable table = arch::rope_table(rope_, dims_, max_positions_, length);
  return ops::make_rotary(table.inverse_frequency, table.attention_scale, rows);
}

ops::RotaryTable Rotary::table(int64_t length) const {
  std::lock_guard lock(mutex_);
  if (depends_on_length(length)) {
    auto found = longer_.find(length);
    if (found == longer_.end()) {
      if (longer_.size() >= kLongTables) longer_.clear();
      found = longer_.emplace(length, make(length, length)).first;
    }
    return found->second;
  }
  if (table_.length() < length) table_ = make(1, std::max(length, 2 * table_.length()));
  return table_;
}

namespace {

// Row t of the result: slot i is that of row positions[plane of i][t] of `table`.
ops::RotaryTable by_plane(const ops::RotaryTable& table, const at::Tensor& positions,
                          const std::vector<int64_t>& planes) {
  const at::Tensor at = tensor::on_host(positions).reshape({positions.size(0), -1}).contiguous();
  const int64_t tokens = at.size(1), half = std::ssize(planes);
  ops::RotaryTable mixed{at::empty({tokens, half}, at::kFloat), at::empty({tokens, half}, at::kFloat)};
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < half; ++i) {
      const int64_t row = at.const_data_ptr<int64_t>()[planes[static_cast<size_t>(i)] * tokens + t];
      mixed.cos.mutable_data_ptr<float>()[t * half + i] = table.cos.const_data_ptr<float>()[row * half + i];
      mixed.sin.mutable_data_ptr<float>()[t * half + i] = table.sin.const_data_ptr<float>()[row * half + i];
    }
  }
  return mixed;
}

}  // namespace

Rotary::Turns Rotary::turns_for(const at::Tensor& given) const {
  at::Tensor positions = given.dim() == 3 && given.size(0) == 4 ? given.narrow(0, 1, 3) : given;
  const int64_t length = positions.numel() == 0 ? 0 : positions.max().item<int64_t>() + 1;
  if (positions.dim() < 3) return {table(length), positions};
  if (positions.size(0) == 1) return {table(length), positions[0]};
  SF_CHECK(positions.size(0) == 3 && !rope_.sections.empty(), Exit::kConfig,
           "position ids of {} planes, where the model's rotary parameters have {}", given.size(0),
           rope_.sections.empty() ? "one" : "three");
  SF_CHECK(positions.numel() == 0 || positions.min().item<int64_t>() >= 0, Exit::kData, "a position id is negative");
  const int64_t batch = positions.size(1), tokens = positions.size(2);
  return {by_plane(table(length), positions, arch::planes_of_slots(rope_.sections, dims_ / 2, interleaved_)),
          at::arange(batch * tokens, at::kLong).view({batch, tokens})};
}

}  // namespace sf::model
