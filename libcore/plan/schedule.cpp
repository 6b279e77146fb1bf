// SPDX-License-Identifier: Apache-2.0
#include "plan/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/fault.h"

namespace sf::plan {
namespace {

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
    const ScheduleOptions& options = plan_.options;
    plan_.mesh = mesh_of(options.layout, options.replicas, options.world);
    if (options.world == 1) plan_.options.local = false;  // the same sums
    SF_CHECK(options.compute == Dtype::kF32 || options.compute == Dtype::kBF16, Exit::kConfig,
             "compute type {}: F32 or BF16 wanted", name_of(options.compute));
    SF_CHECK(options.prefetch >= 0 && options.prefetch <= 64, Exit::kConfig, "engine.prefetch is {}, wanted 0 to 64",
             options.prefetch);
    for (const auto& [name, mode] : options.modes) {
      auto same = [&](const arch::Segment& segment) { return segment.name == name; };
      SF_CHECK(std::any_of(segments_.begin(), segments_.end(), same), Exit::kConfig, "no segment {} to give mode {}",
               name, name_of(mode));
    }
  }

  // What a table's residency means for slots: one rank alone has its intervals whole.
  void place_tables() {
    for (const auto& [name, residency] : plan_.options.tables) {
      if (residency == Residency::kHost) {  // of any frozen parameter
        plan_.options.exchanged.insert(name);
        continue;
      }
      auto same = [&, &name = name](const arch::Table& table) { return table.parameter == name; };
      auto table = std::find_if(spec_.tables.begin(), spec_.tables.end(), same);
      SF_CHECK(table != spec_.tables.end(), Exit::kConfig, "{} is no frozen table of this model", name);
      std::string reason = fault("plan.any_residency") ? "" : misfit(*table, residency);
      SF_CHECK(reason.empty(), Exit::kConfig, "residency {} does not fit table {}: {}", name_of(residency), name,
               reason);
      if (table->in_group && residency == Residency::kShard) continue;  // as it is cut anyway
      bool whole = residency == Residency::kReplicate || plan_.options.world == 1;
      (whole ? plan_.options.replicated : plan_.options.exchanged).insert(name);
    }
  }

  void add_parameters() {
    place_tables();
    for (const arch::Parameter& parameter : spec_.parameters) {
      bool fresh = by_name_.emplace(parameter.name, plan_.parameters.size()).second;
      SF_CHECK(fresh, Exit::kSoftware, "parameter {} is described twice", parameter.name);
      bool whole = plan_.options.replicated.contains(parameter.name);
      SF_CHECK(!whole || !parameter.trainable, Exit::kConfig,
               "parameter {} trains; only a frozen one can be held whole on every rank", parameter.name);
      bool exchanged = plan_.options.exchanged.contains(parameter.name);
      SF_CHECK(!exchanged || !parameter.trainable, Exit::kConfig,
               "parameter {} trains; only a frozen one can live on the host or be exchanged piece by piece",
               parameter.name);
      Held held{parameter.name, parameter.shape, parameter.trainable, whole, exchanged};
      held.compute = plan_.options.full.contains(parameter.name) ? Dtype::kF32 : plan_.options.compute;
      auto table = plan_.options.tables.find(parameter.name);
      if (table != plan_.options.tables.end()) held.residency = table->second;
      auto type = plan_.options.host_types.find(parameter.name);
      if (held.residency == Residency::kHost && type != plan_.options.host_types.end()) held.compute = type->second;
      plan_.parameters.push_back(std::move(held));
    }
    for (const arch::Alias& alias : spec_.aliases) {
      auto of = by_name_.find(alias.of);
      SF_CHECK(of != by_name_.end(), Exit::kSoftware, "alias {} of unknown parameter {}", alias.name, alias.of);
      by_name_.emplace(alias.name, of->second);
    }
    for (const auto* names : {&plan_.options.replicated, &plan_.options.exchanged, &plan_.options.full}) {
      for (const std::string& name : *names) {
        SF_CHECK(by_name_.contains(name), Exit::kConfig, "the model has no parameter {}, which the settings name",
                 name);
      }
    }
  }

  void add_group(const arch::Segment& segment) {
    Group group;
    group.name = segment.name;
    auto mode = plan_.options.modes.find(segment.name);
    group.mode = mode == plan_.options.modes.end() ? plan_.options.mode : mode->second;
    group.reshard = plan_.options.root.contains(segment.name) ? Reshard::kNone : plan_.options.reshard;
    for (const std::string& name : segment.parameters) {
      auto found = by_name_.find(name);
      SF_CHECK(found != by_name_.end(), Exit::kSoftware, "segment {} uses unknown parameter {}", segment.name, name);
      size_t parameter = found->second;
      auto same = [&](const Member& member) { return member.parameter == parameter; };
      if (std::any_of(group.members.begin(), group.members.end(), same)) continue;
      if (plan_.parameters[parameter].exchanged) continue;
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
        cut({p});
      } else {
        owned[held.groups.front()].push_back(p);
      }
    }
    for (const auto& parameters : owned) cut(parameters);
  }

  void cut(const std::vector<size_t>& parameters) {
    std::vector<size_t> sharded;
    std::vector<Shape> shapes;
    for (size_t p : parameters) {
      Held& held = plan_.parameters[p];
      if (held.replicated) {
        held_as(held, whole(held.shape, plan_.mesh));
      } else if (held.exchanged) {
        held_as(held, in_rows(held));
      } else {
        sharded.push_back(p);
        shapes.push_back(held.shape);
      }
    }
    std::vector<Split> splits = split(plan_.options.layout, shapes, plan_.mesh);
    for (size_t i = 0; i < sharded.size(); ++i) held_as(plan_.parameters[sharded[i]], std::move(splits[i]));
  }

  // Whole rows, over all ranks, whatever the layout of the rest; nothing where the host keeps the one copy.
  Split in_rows(const Held& held) const {
    Split split;
    for (int r = 0; r < plan_.options.world; ++r)
      split.held.push_back(held.residency == Residency::kHost ? Interval{}
                                                              : dim0_interval(held.shape, r, plan_.options.world));
    split.owned = split.held;
    return split;
  }

  static void held_as(Held& held, Split split) {
    held.intervals = std::move(split.held);
    held.owned = std::move(split.owned);
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
      bool whole = held.replicated || plan_.mesh.shards == 1;
      member.resident = whole && held.stored() == held.compute;
      if (!member.resident) {
        uint64_t bytes = static_cast<uint64_t>(numel(held.shape)) * size_of(held.compute);
        member.slot_offset = group.slot_bytes;
        group.slot_bytes += align_up(bytes);
        group.gathered_bytes += bytes;
        if (!held.trainable) group.frozen_bytes += bytes;
      }
      if (!held.trainable) continue;
      trains = true;
      for (size_t r = 0; r < world; ++r) owned[r] += static_cast<size_t>(held.owned[r].size());
    }
    if (!trains) return;
    group.fold_offsets.assign(world + 1, 0);
    std::partial_sum(owned.begin(), owned.end(), group.fold_offsets.begin() + 1);
  }

  // When a group's slot is in use, under `reshard`; it fills up to `prefetch` segments ahead.
  Life slot_life(int64_t s) const {
    auto count = static_cast<int64_t>(plan_.groups.size());
    const Group& group = plan_.groups[static_cast<size_t>(s)];
    int64_t ahead = plan_.options.prefetch, back = 2 * count - 1 - s;
    Life life{group.slot_bytes, {}};
    if (group.reshard == Reshard::kNone) {
      life.spans = {{0, 2 * count + 1}};
    } else if (!group.needs_graph) {
      life.spans = {{s - ahead, s + 1}};
    } else if (group.reshard == Reshard::kGradOp) {
      life.spans = {{s - ahead, back + 1}};
    } else {
      life.spans = {{s - ahead, s + 1}, {back - ahead, back + 1}};
    }
    return life;
  }

  void place_slots() {
    auto count = static_cast<int64_t>(plan_.groups.size());
    std::vector<Life> lives;
    for (int64_t s = 0; s < count; ++s) lives.push_back(slot_life(s));
    std::vector<uint64_t> offsets = place(lives, plan_.arena_bytes);
    for (size_t g = 0; g < plan_.groups.size(); ++g) {
      Group& group = plan_.groups[g];
      group.slot_begin = offsets[g];
      if (!plan_.options.local) continue;
      group.sum_begin = plan_.sums_bytes;
      plan_.sums_bytes += group.sum_bytes();
    }
  }

  void list_actions() {
    Slots slots(plan_);
    plan_.round = actions(slots);
    plan_.later = actions(slots);
    for (size_t g = 0; g < plan_.groups.size() && plan_.options.local; ++g) {
      if (!plan_.groups[g].fold_offsets.empty()) plan_.step.push_back(fold_of(g, false));
    }
    if (plan_.mesh.replicas == 1) return;
    uint64_t bytes = 0;
    for (const Held& held : plan_.parameters) {
      if (held.trainable) bytes += static_cast<uint64_t>(numel(held.shape)) * sizeof(float);
    }
    if (bytes > 0) plan_.step.push_back({Action::Kind::kSpread, 0, false, bytes});
  }

  Action fold_of(size_t g, bool backward) const {
    return {Action::Kind::kFold, g, backward, plan_.groups[g].fold_offsets.back() * sizeof(float)};
  }

  std::vector<Action> actions(Slots& slots) const {
    std::vector<Action> actions;
    auto end = 2 * static_cast<int64_t>(plan_.groups.size());
    for (int64_t time = 0; time < end; ++time) {
      std::optional<Use> use = use_at(plan_, time);
      if (!use) continue;
      for (const Gather& gather : due(plan_, slots, time, end)) {
        const Group& group = plan_.groups[gather.use.group];
        uint64_t bytes = group.gathered_bytes - (gather.trainable_only ? group.frozen_bytes : 0);
        if (plan_.mesh.shards > 1) {
          actions.push_back({Action::Kind::kGather, gather.use.group, gather.use.backward, bytes});
        }
        slots.gathered(gather.use.group);
      }
      if (!use->backward || plan_.groups[use->group].fold_offsets.empty()) continue;
      if (plan_.folds_each_round()) actions.push_back(fold_of(use->group, true));
    }
    return actions;
  }

  Memory memory_of(int rank) const {
    auto r = static_cast<size_t>(rank);
    Memory memory;
    for (const Held& held : plan_.parameters) {
      (held.trainable ? memory.masters : memory.frozen) += aligned_bytes(held.intervals[r].size(), held.stored());
      if (held.trainable) memory.moments += 2 * aligned_bytes(held.owned[r].size(), Dtype::kF32);
    }
    for (const Group& group : plan_.groups) {
      if (group.fold_offsets.empty()) continue;
      auto owned = static_cast<int64_t>(group.fold_offsets[r + 1] - group.fold_offsets[r]);
      memory.accumulators += aligned_bytes(owned, Dtype::kF32);
    }
    for (const Held& held : plan_.parameters) {
      if (!held.exchanged || !held.residency) continue;
      uint64_t whole = static_cast<uint64_t>(numel(held.shape)) * size_of(held.compute);
      bool streams = held.residency == Residency::kStream || held.residency == Residency::kRowsStream;
      int64_t chunk = std::min(TableUse{}.chunk, held.shape.at(0));
      if (held.residency == Residency::kHost) memory.host += whole;
      if (held.residency == Residency::kShard) memory.gathered += whole;
      if (streams) memory.gathered += whole / static_cast<uint64_t>(held.shape.at(0)) * static_cast<uint64_t>(chunk);
    }
    memory.sums = plan_.sums_bytes;
    memory.slots = plan_.arena_bytes;
    return memory;
  }

  const arch::ModelSpec& spec_;
  const std::vector<arch::Segment>& segments_;
  Schedule plan_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace

std::string_view name_of(Mode mode) {
  if (mode == Mode::kKeep) return "keep";
  return mode == Mode::kRecompute ? "recompute" : "offload";
}

std::string_view name_of(Reshard reshard) {
  if (reshard == Reshard::kFull) return "full";
  return reshard == Reshard::kGradOp ? "grad_op" : "none";
}

uint64_t aligned_bytes(int64_t elements, Dtype type) {
  return align_up(static_cast<uint64_t>(elements) * size_of(type));
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
