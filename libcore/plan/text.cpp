// SPDX-License-Identifier: Apache-2.0
// A schedule in words: what people read and ranks compare.
#include <fmt/format.h>

#include "base/hash.h"
#include "plan/schedule.h"

namespace sf::plan {
namespace {

std::string_view layout_name(Layout layout) {
  switch (layout) {
    case Layout::kDim0:
      return "dim0";
    case Layout::kFlat:
      return "flat";
    default:
      return "replicate";
  }
}

std::string parameter_line(const Held& held) {
  std::string line =
      fmt::format("parameter {} {} {}", held.name, to_string(held.shape), held.trainable ? "trainable" : "frozen");
  if (held.replicated) return line + " replicated\n";
  line += " held";
  for (const Interval& interval : held.intervals) line += fmt::format(" {}..{}", interval.lo, interval.hi);
  return line + "\n";
}

std::string group_line(const Schedule& plan, const Group& group) {
  std::string line =
      fmt::format("group {} slot {}+{} graph {} fold {} members", group.name, group.slot_begin, group.slot_bytes,
                  group.needs_graph ? "yes" : "no", group.fold_offsets.empty() ? 0 : group.fold_offsets.back());
  for (const Member& member : group.members) {
    line += " " + plan.parameters[member.parameter].name + (member.resident ? " (resident)" : "");
  }
  return line + "\n";
}

std::string action_line(const Schedule& plan, const Action& action, std::string_view when) {
  const Group& group = plan.groups[action.group];
  bool gather = action.kind == Action::Kind::kGather;
  uint64_t bytes = gather ? group.gathered_bytes : group.fold_offsets.back() * sizeof(float);
  return fmt::format("{} round: {} {} {} {} bytes\n", when, action.backward ? "backward" : "forward",
                     gather ? "gather" : "fold", group.name, bytes);
}

std::string_view line_of(std::string_view text, size_t& at) {
  size_t end = std::min(text.find('\n', at), text.size());
  std::string_view line = text.substr(at, end - at);
  at = std::min(text.size(), end + 1);
  return line;
}

}  // namespace

std::string Schedule::text() const {
  std::string out =
      fmt::format("plan 1: world {}, layout {}, compute {}, mode {}\n", options.world, layout_name(options.layout),
                  name_of(options.compute), options.recompute ? "recompute" : "keep");
  for (const std::string& fact : options.facts) out += "fact " + fact + "\n";
  for (const Held& held : parameters) out += parameter_line(held);
  for (const Group& group : groups) out += group_line(*this, group);
  for (const Action& action : round) out += action_line(*this, action, "first");
  for (const Action& action : later) out += action_line(*this, action, "later");
  for (size_t rank = 0; rank < memory.size(); ++rank) {
    const Memory& m = memory[rank];
    out += fmt::format("memory: rank {} masters {} accumulators {} moments {} frozen {} slots {} reduce {} total {}\n",
                       rank, m.masters, m.accumulators, m.moments, m.frozen, m.slots, m.reduce, m.total());
  }
  return out;
}

std::string Schedule::digest() const {
  return sha256_hex(text());
}

std::string first_difference(std::string_view here, std::string_view there) {
  size_t a = 0, b = 0;
  for (size_t number = 1; a < here.size() || b < there.size(); ++number) {
    std::string_view mine = line_of(here, a), theirs = line_of(there, b);
    if (mine != theirs) return fmt::format("line {}: \"{}\" here, \"{}\" there", number, mine, theirs);
  }
  return "";
}

}  // namespace sf::plan
