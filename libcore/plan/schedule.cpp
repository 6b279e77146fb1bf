// SPDX-License-Identifier: Apache-2.0
#include "plan/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"

namespace sf::plan {
namespace {

constexpr uint64_t kAlign = 64;

uint64_t align_up(uint64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

class Builder {
 public:
  Builder(const arch::ModelSpec& spec, const std::vector<arch::Segment>& segments, const ScheduleOptions& options)
      : spec_(spec), segments_(segments) {
    plan_.options = options;
  }

  Schedule build() {
    check_options();
    add_parameters();
    for (const arch::Segment& segment : segments_) add_group(segment);
    check_uses();
    assign_intervals();
    mark_graph();
    for (Group& group : plan_.groups) lay_out(group);
    place_slots();
    list_actions();
    for (int rank = 0; rank < plan_.options.world; ++rank) plan_.memory.push_back(memory_of(rank));
    return std::move(plan_);
  }

 private:
  void check_options() {
    SF_CHECK(plan_.options.world >= 1, Exit::kSoftware, "a world of {}", plan_.options.world);
    SF_CHECK(plan_.options.layout != Layout::kReplicate || plan_.options.world == 1, Exit::kConfig,
             "layout replicate holds whole copies; trainable parameters need dim0 or flat on {} ranks",
             plan_.options.world);
    SF_CHECK(plan_.options.compute == Dtype::kF32 || plan_.options.compute == Dtype::kBF16, Exit::kConfig,
             "compute type {}: F32 or BF16 wanted", name_of(plan_.options.compute));
  }

  void add_parameters() {
    for (const arch::Parameter& parameter : spec_.parameters) {
      bool fresh = by_name_.emplace(parameter.name, plan_.parameters.size()).second;
      SF_CHECK(fresh, Exit::kSoftware, "parameter {} is described twice", parameter.name);
      bool whole = plan_.options.replicated.contains(parameter.name);
      SF_CHECK(!whole || !parameter.trainable, Exit::kConfig,
               "parameter {} trains; only a frozen one can be held whole on every rank", parameter.name);
      plan_.parameters.push_back({parameter.name, parameter.shape, parameter.trainable, whole, {}, {}});
    }
    for (const arch::Alias& alias : spec_.aliases) {
      auto of = by_name_.find(alias.of);
      SF_CHECK(of != by_name_.end(), Exit::kSoftware, "alias {} of unknown parameter {}", alias.name, alias.of);
      by_name_.emplace(alias.name, of->second);
    }
    for (const std::string& name : plan_.options.replicated) {
      SF_CHECK(by_name_.contains(name), Exit::kConfig, "no parameter {} to hold whole on every rank", name);
    }
  }

  void add_group(const arch::Segment& segment) {
    Group group;
    group.name = segment.name;
    for (const std::string& name : segment.parameters) {
      auto found = by_name_.find(name);
      SF_CHECK(found != by_name_.end(), Exit::kSoftware, "segment {} uses unknown parameter {}", segment.name, name);
      size_t parameter = found->second;
      auto same = [&](const Member& member) { return member.parameter == parameter; };
      if (std::any_of(group.members.begin(), group.members.end(), same)) continue;
      group.members.push_back({parameter, false, 0});
      plan_.parameters[parameter].groups.push_back(plan_.groups.size());
    }
    plan_.groups.push_back(std::move(group));
  }

  void check_uses() {
    for (const Held& held : plan_.parameters) {
      SF_CHECK(!held.trainable || !held.groups.empty(), Exit::kSoftware, "parameter {} trains, but no segment uses it",
               held.name);
    }
    std::map<std::string, std::string> writer;
    for (const arch::Segment& segment : segments_) {
      for (const std::string& boundary : segment.writes) {
        auto [place, fresh] = writer.emplace(boundary, segment.name);
        SF_CHECK(fresh, Exit::kSoftware, "boundary {} is written by segments {} and {}", boundary, place->second,
                 segment.name);
      }
    }
  }

  // A parameter's intervals are those of the first group that uses it; one that no segment uses is a group of its own.
  void assign_intervals() {
    std::vector<std::vector<size_t>> owned(plan_.groups.size());
    for (size_t p = 0; p < plan_.parameters.size(); ++p) {
      const Held& held = plan_.parameters[p];
      if (held.groups.empty()) {
        split({p});
      } else {
        owned[held.groups.front()].push_back(p);
      }
    }
    for (const auto& parameters : owned) split(parameters);
  }

  void split(const std::vector<size_t>& parameters) {
    std::vector<size_t> sharded;
    std::vector<Shape> shapes;
    for (size_t p : parameters) {
      Held& held = plan_.parameters[p];
      if (held.replicated) {
        held.intervals.assign(static_cast<size_t>(plan_.options.world), {0, numel(held.shape)});
      } else {
        sharded.push_back(p);
        shapes.push_back(held.shape);
      }
    }
    auto split = intervals(plan_.options.layout, shapes, plan_.options.world);
    for (size_t i = 0; i < sharded.size(); ++i) plan_.parameters[sharded[i]].intervals = split[i];
  }

  void mark_graph() {
    std::set<std::string> differentiable;
    for (size_t g = 0; g < segments_.size(); ++g) {
      Group& group = plan_.groups[g];
      for (const Member& member : group.members) group.needs_graph |= plan_.parameters[member.parameter].trainable;
      for (const std::string& boundary : segments_[g].reads) group.needs_graph |= differentiable.contains(boundary);
      if (group.needs_graph) differentiable.insert(segments_[g].writes.begin(), segments_[g].writes.end());
    }
  }

  void lay_out(Group& group) {
    auto world = static_cast<size_t>(plan_.options.world);
    std::vector<size_t> owned(world, 0);
    bool trains = false;
    for (Member& member : group.members) {
      const Held& held = plan_.parameters[member.parameter];
      Dtype stored = held.trainable ? Dtype::kF32 : plan_.options.compute;
      member.resident = held.replicated || (world == 1 && stored == plan_.options.compute);
      if (!member.resident) {
        member.slot_offset = group.slot_bytes;
        group.slot_bytes += aligned_bytes(numel(held.shape), plan_.options.compute);
        group.gathered_bytes += static_cast<uint64_t>(numel(held.shape)) * size_of(plan_.options.compute);
      }
      if (!held.trainable) continue;
      trains = true;
      for (size_t r = 0; r < world; ++r) owned[r] += static_cast<size_t>(held.intervals[r].size());
    }
    if (!trains) return;
    group.fold_offsets.assign(world + 1, 0);
    std::partial_sum(owned.begin(), owned.end(), group.fold_offsets.begin() + 1);
    plan_.reduce_elements = std::max(plan_.reduce_elements, group.fold_offsets.back());
  }

  // Forward of segment s is at time s, its backward at 2S - 1 - s.
  void place_slots() {
    auto count = static_cast<int64_t>(plan_.groups.size());
    std::vector<Life> lives;
    for (int64_t s = 0; s < count; ++s) {
      const Group& group = plan_.groups[static_cast<size_t>(s)];
      Life life{group.slot_bytes, {{s, s + 1}}};
      if (group.needs_graph) life.spans.push_back({2 * count - 1 - s, 2 * count - s});
      lives.push_back(life);
    }
    std::vector<uint64_t> offsets = place(lives, plan_.arena_bytes);
    for (size_t g = 0; g < offsets.size(); ++g) plan_.groups[g].slot_begin = offsets[g];
  }

  void list_actions() {
    Slots slots(plan_);
    plan_.round = actions(slots);
    plan_.later = actions(slots);
  }

  std::vector<Action> actions(Slots& slots) const {
    std::vector<Action> actions;
    auto gather = [&](size_t g, bool backward) {
      if (!slots.needs_gather(g)) return;
      slots.gathered(g);
      actions.push_back({Action::Kind::kGather, g, backward});
    };
    for (size_t g = 0; g < plan_.groups.size(); ++g) gather(g, false);
    for (size_t g = plan_.groups.size(); g-- > 0;) {
      if (!plan_.groups[g].needs_graph) continue;
      gather(g, true);
      if (!plan_.groups[g].fold_offsets.empty()) actions.push_back({Action::Kind::kFold, g, true});
    }
    return actions;
  }

  Memory memory_of(int rank) const {
    auto r = static_cast<size_t>(rank);
    Memory memory;
    for (const Held& held : plan_.parameters) {
      int64_t elements = held.intervals[r].size();
      if (held.trainable) {
        memory.masters += aligned_bytes(elements, Dtype::kF32);
        memory.moments += 2 * aligned_bytes(elements, Dtype::kF32);
      } else {
        memory.frozen += aligned_bytes(elements, plan_.options.compute);
      }
    }
    for (const Group& group : plan_.groups) {
      if (group.fold_offsets.empty()) continue;
      auto owned = static_cast<int64_t>(group.fold_offsets[r + 1] - group.fold_offsets[r]);
      memory.accumulators += aligned_bytes(owned, Dtype::kF32);
    }
    memory.slots = plan_.arena_bytes;
    memory.reduce = aligned_bytes(static_cast<int64_t>(plan_.reduce_elements), Dtype::kF32);
    return memory;
  }

  const arch::ModelSpec& spec_;
  const std::vector<arch::Segment>& segments_;
  Schedule plan_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

bool overlap(const Life& a, const Life& b) {
  for (const Interval& x : a.spans) {
    for (const Interval& y : b.spans) {
      if (!intersect(x, y).empty()) return true;
    }
  }
  return false;
}

}  // namespace

uint64_t aligned_bytes(int64_t elements, Dtype type) {
  return align_up(static_cast<uint64_t>(elements) * size_of(type));
}

std::vector<uint64_t> place(const std::vector<Life>& lives, uint64_t& arena_bytes) {
  std::vector<size_t> order(lives.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lives[a].bytes > lives[b].bytes; });
  std::vector<uint64_t> offsets(lives.size(), 0);
  std::vector<size_t> placed;
  arena_bytes = 0;
  for (size_t i : order) {
    std::vector<std::pair<uint64_t, uint64_t>> taken;  // begin, end
    for (size_t other : placed) {
      if (overlap(lives[i], lives[other])) taken.emplace_back(offsets[other], offsets[other] + lives[other].bytes);
    }
    std::sort(taken.begin(), taken.end());
    uint64_t at = 0;
    for (auto [begin, end] : taken) {
      if (at + lives[i].bytes <= begin) break;
      at = std::max(at, end);
    }
    offsets[i] = at;
    placed.push_back(i);
    arena_bytes = std::max(arena_bytes, at + lives[i].bytes);
  }
  return offsets;
}

void Slots::gathered(size_t group) {
  const Group& filled = plan_.groups[group];
  for (size_t other = 0; other < intact_.size(); ++other) {
    const Group& slot = plan_.groups[other];
    bool apart = slot.slot_begin >= filled.slot_begin + filled.slot_bytes ||
                 filled.slot_begin >= slot.slot_begin + slot.slot_bytes;
    if (!apart) intact_[other] = false;
  }
  intact_[group] = true;
}

void Slots::masters_changed() {
  for (size_t g = 0; g < intact_.size(); ++g) {
    if (!plan_.groups[g].fold_offsets.empty()) intact_[g] = false;
  }
}

Schedule make_schedule(const arch::ModelSpec& spec, const std::vector<arch::Segment>& segments,
                       const ScheduleOptions& options) {
  return Builder(spec, segments, options).build();
}

bool Schedule::gathers(size_t group, bool backward) const {
  return std::any_of(round.begin(), round.end(), [&](const Action& action) {
    return action.kind == Action::Kind::kGather && action.group == group && action.backward == backward;
  });
}

}  // namespace sf::plan
