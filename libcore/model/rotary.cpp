// SPDX-License-Identifier: Apache-2.0
#include "model/rotary.h"

#include <algorithm>

#include "base/error.h"

namespace sf::model {
namespace {

// Beyond max_positions every length has its own table; a few serve the layers of the forwards in flight.
constexpr size_t kLongTables = 8;
constexpr int64_t kFirstRows = 512;

}  // namespace

Rotary::Rotary(const arch::Rope& rope, int64_t rotary_dims, int64_t max_positions)
    : rope_(rope), dims_(rotary_dims), max_positions_(max_positions) {
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

ops::RotaryTable Rotary::table_for(const at::Tensor& positions) const {
  return table(positions.numel() == 0 ? 0 : positions.max().item<int64_t>() + 1);
}

}  // namespace sf::model
