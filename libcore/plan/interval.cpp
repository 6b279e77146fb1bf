// SPDX-License-Identifier: Apache-2.0
#include "plan/interval.h"

#include <algorithm>

#include "base/error.h"

namespace sf::plan {
namespace {

void check_world(int rank, int world) {
  SF_CHECK(world >= 1 && rank >= 0 && rank < world, Exit::kSoftware, "rank {} of a world of {}", rank, world);
}

// Ranges of ceil(total / world) units, cut at `total`: the last ranks may hold less, or nothing.
Interval chunk(int64_t total, int rank, int world) {
  int64_t size = total / world + (total % world != 0 ? 1 : 0);
  int64_t lo = std::min(total, size * rank);
  return {lo, std::min(total, lo + size)};
}

}  // namespace

Interval dim0_interval(const Shape& shape, int rank, int world) {
  check_world(rank, world);
  int64_t elements = numel(shape);
  if (elements == 0) return {0, 0};
  int64_t rows = shape.empty() ? 1 : shape[0];
  int64_t row = elements / rows;
  Interval held = chunk(rows, rank, world);
  return {held.lo * row, held.hi * row};
}

std::vector<std::vector<Interval>> intervals(Layout layout, const std::vector<Shape>& group, int world) {
  check_world(0, world);
  std::vector<std::vector<Interval>> held(group.size(), std::vector<Interval>(static_cast<size_t>(world)));
  int64_t total = 0;
  for (const Shape& shape : group) total += numel(shape);
  int64_t start = 0;
  for (size_t p = 0; p < group.size(); ++p) {
    int64_t elements = numel(group[p]);
    for (int rank = 0; rank < world; ++rank) {
      Interval& mine = held[p][static_cast<size_t>(rank)];
      if (layout == Layout::kDim0) {
        mine = dim0_interval(group[p], rank, world);
      } else if (layout == Layout::kReplicate) {
        mine = {0, elements};
      } else {
        Interval part = intersect(chunk(total, rank, world), {start, start + elements});
        mine = part.empty() ? Interval{} : Interval{part.lo - start, part.hi - start};
      }
    }
    start += elements;
  }
  return held;
}

Interval intersect(const Interval& a, const Interval& b) {
  Interval both{std::max(a.lo, b.lo), std::min(a.hi, b.hi)};
  return both.empty() ? Interval{both.lo, both.lo} : both;
}

Turn turn_of(int64_t micro_batch, int world) {
  check_world(0, world);
  SF_CHECK(micro_batch >= 0, Exit::kSoftware, "micro-batch {}", micro_batch);
  return {static_cast<int>(micro_batch % world), micro_batch / world};
}

int64_t rounds(int64_t micro_batches, int world) {
  check_world(0, world);
  return micro_batches / world + (micro_batches % world != 0 ? 1 : 0);
}

}  // namespace sf::plan
