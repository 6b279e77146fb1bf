// SPDX-License-Identifier: Apache-2.0
// What one rank holds: its intervals of masters, accumulators, moments and frozen parameters, the arena of slots and
// local sums, and the leaves that segments read. All layout comes from the plan; nothing is allocated after
// construction.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "arch/model_spec.h"
#include "comm/group.h"
#include "model/segment.h"
#include "plan/schedule.h"

namespace sf::engine {

// What a segment computes with: its parameters under the names it uses, and those that train in the order of the fold.
struct Leaves {
  model::Tensors by_name;
  std::vector<at::Tensor> trainable;
};

using ReadInterval = std::function<void(int64_t lo, int64_t hi, std::span<float> to)>;

class Store {
 public:
  // `plan` and `segments` outlive the store.
  Store(const plan::Schedule& plan, const arch::ModelSpec& spec, const std::vector<model::Segment>& segments, int rank);
  Store(const Store&) = delete;

  size_t index_of(std::string_view name) const;  // follows an alias; kSoftware if unknown
  const plan::Interval& held(size_t parameter) const;
  const plan::Interval& owned(size_t parameter) const;

  // This rank's held interval, the owned part of it, and moments of that; empty spans for a frozen parameter.
  std::span<float> master(size_t parameter) const;
  std::span<float> owned_master(size_t parameter) const;
  std::span<float> exp_avg(size_t parameter) const;
  std::span<float> exp_avg_sq(size_t parameter) const;
  // Owned accumulators of all trainable members of a group, back to back in order; or of one of them.
  std::span<float> accumulators(size_t group) const;
  std::span<float> accumulator(size_t group, size_t parameter) const;
  void zero_accumulators();
  // Where a group's gradient is added up before it is folded (local sums), or for good (a world of one).
  std::span<float> sum(size_t group) const;
  void zero_sums();

  void load(size_t parameter, const ReadInterval& read);
  bool loaded(size_t parameter) const { return loaded_[parameter]; }
  // A frozen parameter that is held elsewhere, whole: segments that are given it read `whole`, whose memory outlives
  // the store. kConfig if such a segment computes in another type.
  void lend(size_t parameter, const at::Tensor& whole);
  std::span<std::byte> frozen_bytes(size_t parameter) const;  // this rank's interval, as stored
  std::vector<float> read_frozen(size_t parameter) const;     // the same, fp32

  // Fills the group's slot from the ranks of this replica (`row`); or only what trains of it.
  void gather(size_t group, bool trainable_only, comm::Group& row, const comm::Call& call) const;
  // Owned parts of all masters to the ranks that hold the same intervals (`column`).
  void spread(comm::Group& column, const comm::Call& call) const;
  void poison(uint64_t begin, uint64_t end) const;  // bytes of the arena, with NaN

  const Leaves& leaves(size_t group) const { return leaves_[group]; }
  const std::vector<size_t>& trainable_members(size_t group) const { return trainable_parameters_[group]; }
  // Tensors that share the memory of slots and stored parameters, the store's own among them.
  int64_t handles() const;
  // True if the tensor's memory is a slot or a stored parameter; or one that only load() changes.
  bool owns(const at::Tensor& tensor) const;
  bool is_fixed(const at::Tensor& tensor) const;

 private:
  // One member's part of a gather: what this rank gives already lies in its stored place, or is converted into the
  // slot.
  struct Fill {
    size_t parameter = 0;
    std::vector<size_t> sizes;  // bytes, by rank of the row
    std::span<std::byte> into, place;
    bool converted = false;
  };
  // Views of a group's fills, trainable ones last.
  struct Gather {
    std::vector<Fill> fills;
    std::vector<comm::GatherPart> parts;
    size_t frozen = 0;
  };
  void place_parameters();
  void place_accumulators();
  void make_leaves(const std::vector<model::Segment>& segments);
  void prepare_gather(size_t group);
  void prepare_spread();
  at::Tensor leaf_of(size_t group, const plan::Member& member) const;

  const plan::Schedule& plan_;
  const std::vector<model::Segment>& segments_;
  int rank_;
  std::map<std::string, size_t, std::less<>> names_;
  std::vector<int64_t> offset_;           // of each parameter: elements in masters_, or bytes in frozen_
  std::vector<int64_t> moments_at_;       // of each trainable parameter, elements
  std::vector<int64_t> accumulators_at_;  // of each group, elements
  std::vector<bool> loaded_;
  at::Tensor masters_, exp_avg_, exp_avg_sq_, accumulators_, sums_;  // fp32, flat
  at::Tensor frozen_, arena_;                                        // bytes
  std::vector<at::Tensor> lent_;
  std::vector<Leaves> leaves_;
  std::vector<std::vector<size_t>> trainable_parameters_;
  std::vector<Gather> gathers_;
  std::vector<std::vector<size_t>> spread_sizes_;
  std::vector<comm::GatherPart> spread_;
};

}  // namespace sf::engine
