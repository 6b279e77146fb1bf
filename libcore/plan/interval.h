// SPDX-License-Identifier: Apache-2.0
// Who holds what: an interval is a half-open range of a parameter's row-major elements. Engine, checkpoints and
// resharding know only intervals; the layouts below are three rules that make them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
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
std::string_view name_of(Layout layout);         // "dim0", "flat", "replicate"

// Ranks as a table of replicas x shards (HSDP): rank = replica * shards + shard. The ranks of one replica hold every
// parameter together; the ranks of one shard hold the same intervals.
struct Mesh {
  int replicas = 1, shards = 1;
  int world() const { return replicas * shards; }
  int replica_of(int rank) const { return rank / shards; }
  int shard_of(int rank) const { return rank % shards; }
  std::vector<int> row(int rank) const;     // the ranks of its replica
  std::vector<int> column(int rank) const;  // the ranks that hold the same intervals
};
// Whole copies are a mesh of one shard. kConfig if `replicas` does not divide the world.
Mesh mesh_of(Layout layout, int replicas, int world);

// Dim-0 chunks as FSDP2 makes them: c = ceil(d0 / shards) rows each; trailing ones may be short or empty.
Interval dim0_interval(const Shape& shape, int shard, int shards);

// What every rank holds of one parameter (masters and frozen values), and what it owns: the part whose gradient it
// folds and whose moments it keeps. Owned parts are disjoint and cover the parameter; with one replica they are what is
// held, else the replicas cut the held interval among themselves.
struct Split {
  std::vector<Interval> held, owned;  // by rank
};
// Of all parameters of one group, in order; kFlat splits their concatenation.
std::vector<Split> split(Layout layout, const std::vector<Shape>& group, const Mesh& mesh);
// One parameter of which every rank holds the whole.
Split whole(const Shape& shape, const Mesh& mesh);

Interval intersect(const Interval& a, const Interval& b);
// Ranks sorted by where their intervals begin: disjoint intervals then lie back to back.
std::vector<int> in_order(const std::vector<Interval>& intervals);

// Which rank computes micro-batch k of a window, and in which round (design: rank k mod W, round k div W).
struct Turn {
  int rank = 0;
  int64_t round = 0;
};
Turn turn_of(int64_t micro_batch, int world);
int64_t rounds(int64_t micro_batches, int world);

}  // namespace sf::plan
