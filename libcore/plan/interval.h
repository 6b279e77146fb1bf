// SPDX-License-Identifier: Apache-2.0
// Who holds what: an interval is a half-open range of a parameter's row-major elements. Engine, checkpoints and
// resharding know only intervals; the layouts below are three rules that make them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/shape.h"

namespace sf::plan {

struct Interval {
  int64_t lo = 0, hi = 0;  // elements
  int64_t size() const { return hi - lo; }
  bool empty() const { return hi <= lo; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

enum class Layout { kDim0, kFlat, kReplicate };  // shard.backend = fsdp2 | fsdp1 | replicate

// Dim-0 chunks as FSDP2 makes them: c = ceil(d0 / world) rows a rank; trailing ranks may be short or empty.
Interval dim0_interval(const Shape& shape, int rank, int world);
// One parameter's interval of every rank under `layout`; kFlat splits `group` (all parameters of one group, in order).
std::vector<std::vector<Interval>> intervals(Layout layout, const std::vector<Shape>& group,
                                             int world);  // [param][rank]
Interval intersect(const Interval& a, const Interval& b);

// Which rank computes micro-batch k of a window, and in which round (design: rank k mod W, round k div W).
struct Turn {
  int rank = 0;
  int64_t round = 0;
};
Turn turn_of(int64_t micro_batch, int world);
int64_t rounds(int64_t micro_batches, int world);

}  // namespace sf::plan
