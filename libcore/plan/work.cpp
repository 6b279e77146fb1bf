// SPDX-License-Identifier: Apache-2.0
#include "plan/work.h"

#include <algorithm>

namespace sf::plan {
namespace {

constexpr uint64_t kMargin = 128;
constexpr int64_t kFirstRows = 512;  // as model/rotary.cpp

}  // namespace

uint64_t rotary_bytes(int64_t dims, int64_t length) {
  int64_t rows = length <= kFirstRows ? kFirstRows : std::max(length, 2 * kFirstRows);
  return 2 * aligned_bytes(rows * (dims / 2), Dtype::kF32);
}

uint64_t with_margin(const Tape& tape) {
  return tape.peak() + tape.peak() / kMargin;
}

}  // namespace sf::plan
