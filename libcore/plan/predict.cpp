// SPDX-License-Identifier: Apache-2.0
#include "plan/predict.h"

#include <algorithm>

#include "base/error.h"

namespace sf::plan {
uint64_t checkpoint_bytes(const Schedule& plan, int rank) {
  int64_t elements = 0;
  for (const Held& held : plan.parameters)
    if (held.trainable) elements += held.owned[static_cast<size_t>(rank)].size();
  return 3 * sizeof(float) * static_cast<uint64_t>(elements);
}

int64_t rounds_of(const Schedule& plan, const Load& load) {
  return rounds(load.micro_batches, plan.options.world);
}

Totals totals_of(const Schedule& plan, const Load& load, int rank) {
  SF_CHECK(rank >= 0 && rank < plan.options.world, Exit::kSoftware, "rank {} of a world of {}", rank,
           plan.options.world);
  const Memory& memory = plan.memory[static_cast<size_t>(rank)];
  Totals totals;
  totals.at_rest = memory.total() + load.constant_bytes + load.sampler_bytes;
  // All micro-batches of the rank's window are collated before its first round.
  uint64_t batches = 0;
  for (int64_t k = rank; k < load.micro_batches; k += plan.options.world) ++batches;
  totals.peak = totals.at_rest + memory.gathered + batches * load.input_bytes + (batches > 0 ? load.work_bytes : 0);
  totals.peak = std::max(totals.peak, totals.at_rest + load.evaluation_bytes);
  auto sharers = static_cast<uint64_t>(load.ranks_here > 0 ? load.ranks_here : plan.options.world);
  totals.host = load.sample_bytes + (memory.host + sharers - 1) / sharers;
  if (load.copies) totals.host += checkpoint_bytes(plan, rank);
  totals.resident = totals.peak + totals.host;
  if (rank != 0) return totals;
  uint64_t checkpoint = 0;
  for (int r = 0; r < plan.options.world; ++r) checkpoint += checkpoint_bytes(plan, r);
  totals.disk = static_cast<uint64_t>(load.checkpoints + 1) * checkpoint;
  return totals;
}

uint64_t received(const Schedule& plan, const Action& action, int rank) {
  auto r = static_cast<size_t>(rank);
  uint64_t own = 0;
  if (action.kind == Action::Kind::kSpread) {
    uint64_t missing = 0;
    for (const Held& held : plan.parameters)
      if (held.trainable) missing += static_cast<uint64_t>(held.intervals[r].size() - held.owned[r].size());
    return missing * sizeof(float);
  }
  const Group& group = plan.groups[action.group];
  bool all = action.bytes == group.gathered_bytes;  // else what is frozen is still in the slot
  for (const Member& member : group.members) {
    const Held& held = plan.parameters[member.parameter];
    if (!member.resident && (all || held.trainable))
      own += static_cast<uint64_t>(held.intervals[r].size()) * size_of(held.compute);
  }
  return action.bytes - std::min(own, action.bytes);
}

Traffic traffic_of(const Schedule& plan, const Load& load, int rank) {
  Traffic traffic;
  if (plan.options.world == 1) return traffic;
  auto r = static_cast<size_t>(rank);
  // `present`: ranks with a gradient; those without a micro-batch send none.
  auto add = [&](const std::vector<Action>& actions, int64_t present) {
    for (const Action& action : actions) {
      if (action.kind != Action::Kind::kFold) {
        ++traffic.gathers;
        traffic.gather_bytes += received(plan, action, rank);
        continue;
      }
      ++traffic.folds;
      const std::vector<size_t>& offsets = plan.groups[action.group].fold_offsets;
      auto others = static_cast<uint64_t>(present - (rank < present ? 1 : 0));
      traffic.fold_bytes += others * (offsets[r + 1] - offsets[r]) * sizeof(float);
    }
  };
  int64_t world = plan.options.world, turns = rounds_of(plan, load);
  for (int64_t round = 0; round < turns; ++round)
    add(round == 0 ? plan.round : plan.later, std::min(world, load.micro_batches - round * world));
  add(plan.step, std::min(world, load.micro_batches));
  return traffic;
}

}  // namespace sf::plan
