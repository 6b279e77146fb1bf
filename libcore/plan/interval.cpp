// SPDX-License-Identifier: Apache-2.0
#include "plan/interval.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/fault.h"

namespace sf::plan {
namespace {

void check_world(int rank, int world) {
  SF_CHECK(world >= 1 && rank >= 0 && rank < world, Exit::kSoftware, "rank {} of a world of {}", rank, world);
}

// Ranges of ceil(total / parts) units, cut at `total`: the last parts may hold less, or nothing.
Interval chunk(int64_t total, int part, int parts) {
  int64_t size = total / parts + (total % parts != 0 ? 1 : 0);
  if (fault("plan.overlap") && part > 0) size = std::max<int64_t>(0, size - 1);
  int64_t lo = std::min(total, size * part);
  return {lo, std::min(total, lo + size)};
}

// [parameter][shard] of the group's concatenation.
std::vector<std::vector<Interval>> flat_intervals(const std::vector<Shape>& group, int shards) {
  int64_t total = 0, start = 0;
  for (const Shape& shape : group) total += numel(shape);
  std::vector<std::vector<Interval>> cut;
  for (const Shape& shape : group) {
    int64_t end = start + numel(shape);
    cut.emplace_back();
    for (int s = 0; s < shards; ++s) {
      Interval part = intersect(chunk(total, s, shards), {start, end});
      cut.back().push_back(part.empty() ? Interval{} : Interval{part.lo - start, part.hi - start});
    }
    start = end;
  }
  return cut;
}

Split over_mesh(const std::vector<Interval>& cut, const Mesh& mesh) {
  Split split;
  for (int rank = 0; rank < mesh.world(); ++rank) {
    Interval held = cut[static_cast<size_t>(mesh.shard_of(rank))];
    Interval own = chunk(held.size(), mesh.replica_of(rank), mesh.replicas);
    split.held.push_back(held);
    split.owned.push_back({held.lo + own.lo, held.lo + own.hi});
  }
  return split;
}

}  // namespace

std::string_view name_of(Layout layout) {
  if (layout == Layout::kDim0) return "dim0";
  return layout == Layout::kFlat ? "flat" : "replicate";
}

std::vector<int> Mesh::row(int rank) const {
  std::vector<int> ranks(static_cast<size_t>(shards));
  std::iota(ranks.begin(), ranks.end(), replica_of(rank) * shards);
  return ranks;
}

std::vector<int> Mesh::column(int rank) const {
  std::vector<int> ranks;
  for (int peer = shard_of(rank); peer < world(); peer += shards) ranks.push_back(peer);
  return ranks;
}

Mesh mesh_of(Layout layout, int replicas, int world) {
  check_world(0, world);
  if (layout == Layout::kReplicate) replicas = world;
  SF_CHECK(replicas >= 1 && world % replicas == 0, Exit::kConfig,
           "shard.replicas = {} does not divide the world of {} ranks", replicas, world);
  return {replicas, world / replicas};
}

Interval dim0_interval(const Shape& shape, int shard, int shards) {
  check_world(shard, shards);
  int64_t elements = numel(shape);
  if (elements == 0) return {0, 0};
  int64_t rows = shape.empty() ? 1 : shape[0];
  int64_t row = elements / rows;
  Interval held = chunk(rows, shard, shards);
  return {held.lo * row, held.hi * row};
}

std::vector<Split> split(Layout layout, const std::vector<Shape>& group, const Mesh& mesh) {
  std::vector<Split> splits;
  if (layout == Layout::kFlat) {
    for (const auto& cut : flat_intervals(group, mesh.shards)) splits.push_back(over_mesh(cut, mesh));
    return splits;
  }
  for (const Shape& shape : group) {
    std::vector<Interval> cut;
    for (int s = 0; s < mesh.shards; ++s) cut.push_back(dim0_interval(shape, s, mesh.shards));
    splits.push_back(over_mesh(cut, mesh));
  }
  return splits;
}

Split whole(const Shape& shape, const Mesh& mesh) {
  return over_mesh({{0, numel(shape)}}, {mesh.world(), 1});
}

Interval intersect(const Interval& a, const Interval& b) {
  Interval both{std::max(a.lo, b.lo), std::min(a.hi, b.hi)};
  return both.empty() ? Interval{both.lo, both.lo} : both;
}

std::vector<int> in_order(const std::vector<Interval>& intervals) {
  std::vector<int> ranks(intervals.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return intervals[static_cast<size_t>(a)].lo < intervals[static_cast<size_t>(b)].lo;
  });
  return ranks;
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
