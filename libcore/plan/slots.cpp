// SPDX-License-Identifier: Apache-2.0
// Slots over time: where they lie, and what they hold.
#include <algorithm>
#include <numeric>

#include "base/fault.h"
#include "plan/schedule.h"

namespace sf::plan {
namespace {

bool overlap(const Life& a, const Life& b) {
  for (const Interval& x : a.spans) {
    for (const Interval& y : b.spans) {
      if (!intersect(x, y).empty()) return true;
    }
  }
  return false;
}

}  // namespace

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
      if (fault("plan.one_slot")) continue;
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

std::optional<Use> use_at(const Schedule& plan, int64_t time) {
  auto count = static_cast<int64_t>(plan.groups.size());
  if (time < 0 || time >= 2 * count) return std::nullopt;
  if (time < count) return Use{static_cast<size_t>(time), false};
  auto group = static_cast<size_t>(2 * count - 1 - time);
  if (!plan.groups[group].needs_graph) return std::nullopt;
  return Use{group, true};
}

std::vector<Gather> due(const Schedule& plan, const Slots& slots, int64_t time, int64_t end) {
  std::vector<Gather> gathers;
  for (int64_t t = time; t <= time + plan.options.prefetch && t < end; ++t) {
    std::optional<Use> use = use_at(plan, t);
    if (!use || slots.state(use->group) == Slots::State::kFull) continue;
    auto same = [&](const Gather& gather) { return gather.use.group == use->group; };
    if (std::any_of(gathers.begin(), gathers.end(), same)) continue;
    gathers.push_back({*use, slots.state(use->group) == Slots::State::kFrozen});
  }
  return gathers;
}

void Slots::gathered(size_t group) {
  const Group& filled = plan_.groups[group];
  overwrite(filled.slot_begin, filled.slot_bytes, group);
  state_[group] = State::kFull;
}

void Slots::overwrite(uint64_t begin, uint64_t bytes, size_t by) {
  for (size_t other = 0; other < state_.size(); ++other) {
    const Group& slot = plan_.groups[other];
    bool apart = slot.slot_begin >= begin + bytes || begin >= slot.slot_begin + slot.slot_bytes;
    if (!apart && other != by) release(other, State::kEmpty);
  }
}

void Slots::masters_changed() {
  for (size_t g = 0; g < state_.size(); ++g) {
    const Group& group = plan_.groups[g];
    if (group.fold_offsets.empty() || state_[g] == State::kEmpty) continue;
    bool keeps = group.reshard == Reshard::kNone && group.frozen_bytes > 0;
    release(g, keeps ? State::kFrozen : State::kEmpty);
  }
}

void Slots::release(size_t g, State left) {
  if (state_[g] == State::kEmpty) return;
  state_[g] = left;
  if (!on_release) return;
  const Group& group = plan_.groups[g];
  for (const Member& member : group.members) {
    const Held& held = plan_.parameters[member.parameter];
    if (member.resident || (left == State::kFrozen && !held.trainable)) continue;
    uint64_t begin = group.slot_begin + member.slot_offset;
    on_release(begin, begin + aligned_bytes(numel(held.shape), held.compute));
  }
}

}  // namespace sf::plan
