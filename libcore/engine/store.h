// SPDX-License-Identifier: Apache-2.0
// What one rank holds: its intervals of masters, accumulators, moments and frozen parameters, the arena of slots, and
// the leaves that segments read. All layout comes from the plan; nothing is allocated after construction.
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

using ReadInterval = std::function<void(int64_t lo, int64_t hi, std::span<float> to)>;

class Store {
 public:
  // `plan`, `segments` and `group` outlive the store.
  Store(const plan::Schedule& plan, const arch::ModelSpec& spec, const std::vector<model::Segment>& segments,
        comm::Group& group);

  size_t index_of(std::string_view name) const;  // follows an alias; kSoftware if unknown
  const plan::Interval& held(size_t parameter) const;

  // This rank's interval; empty spans for a frozen parameter.
  std::span<float> master(size_t parameter) const;
  std::span<float> exp_avg(size_t parameter) const;
  std::span<float> exp_avg_sq(size_t parameter) const;
  // Accumulators of all trainable members of a group, packed in order; or of one of them.
  std::span<float> accumulators(size_t group) const;
  std::span<float> accumulator(size_t group, size_t parameter) const;
  void zero_accumulators();

  void load(size_t parameter, const ReadInterval& read);
  bool loaded(size_t parameter) const { return loaded_[parameter]; }
  std::vector<float> read_frozen(size_t parameter) const;  // this rank's interval, fp32

  // Fills the group's slot from all ranks.
  void gather(size_t group, const comm::Call& call);
  // A segment's parameters under the names it uses; and its trainable leaves, in the order of the fold.
  const model::Tensors& parameters(size_t group) const { return by_name_[group]; }
  const std::vector<at::Tensor>& leaves(size_t group) const { return trainable_[group]; }
  const std::vector<size_t>& trainable_members(size_t group) const { return trainable_parameters_[group]; }
  // True if the tensor's memory is a slot or a stored parameter.
  bool owns(const at::Tensor& tensor) const;
  std::span<float> reduce_buffer() const;
  uint64_t allocated_bytes() const;

 private:
  void place_parameters();
  void place_accumulators();
  void make_leaves(const std::vector<model::Segment>& segments);
  at::Tensor leaf_of(size_t group, const plan::Member& member) const;
  std::span<std::byte> frozen_bytes(size_t parameter) const;

  const plan::Schedule& plan_;
  comm::Group& group_;
  std::map<std::string, size_t, std::less<>> names_;
  std::vector<int64_t> offset_;           // of each parameter: elements in masters_ (and the moments), or in frozen_
  std::vector<int64_t> accumulators_at_;  // of each group, elements
  std::vector<bool> loaded_;
  at::Tensor masters_, exp_avg_, exp_avg_sq_, accumulators_, reduce_;  // fp32, flat
  at::Tensor frozen_, arena_;                                          // compute type, flat
  std::vector<model::Tensors> by_name_;
  std::vector<std::vector<at::Tensor>> trainable_;
  std::vector<std::vector<size_t>> trainable_parameters_;
};

}  // namespace sf::engine
