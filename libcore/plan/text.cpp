// SPDX-License-Identifier: Apache-2.0
// A schedule in words: what people read and ranks compare.
#include <fmt/format.h>

#include "base/hash.h"
#include "plan/schedule.h"

namespace sf::plan {
namespace {

std::string parameter_line(const Held& held) {
  std::string line = fmt::format("parameter {} {} {} {}", held.name, to_string(held.shape),
                                 held.trainable ? "trainable" : "frozen", name_of(held.compute));
  if (held.residency) line += fmt::format(" residency {}", name_of(*held.residency));
  if (held.replicated) return line + " replicated\n";
  line += " held";
  for (const Interval& interval : held.intervals) line += fmt::format(" {}..{}", interval.lo, interval.hi);
  return line + "\n";
}

std::string group_line(const Schedule& plan, const Group& group) {
  std::string line =
      fmt::format("group {}{} mode {} slot {}+{} sum {}+{} graph {} members", group.name,
                  plan.options.root.contains(group.name) ? " (root)" : "", name_of(group.mode), group.slot_begin,
                  group.slot_bytes, group.sum_begin, group.sum_bytes(), group.needs_graph ? "yes" : "no");
  for (const Member& member : group.members) {
    line += " " + plan.parameters[member.parameter].name + (member.resident ? " (resident)" : "");
  }
  return line + "\n";
}

std::string action_line(const Schedule& plan, const Action& action, std::string_view when) {
  if (action.kind == Action::Kind::kSpread) return fmt::format("{}: spread masters {} bytes\n", when, action.bytes);
  std::string_view pass = when == "step" ? "" : action.backward ? " backward" : " forward";
  return fmt::format("{}:{} {} {} {} bytes\n", when, pass, action.kind == Action::Kind::kGather ? "gather" : "fold",
                     plan.groups[action.group].name, action.bytes);
}

std::string_view line_of(std::string_view text, size_t& at) {
  size_t end = std::min(text.find('\n', at), text.size());
  std::string_view line = text.substr(at, end - at);
  at = std::min(text.size(), end + 1);
  return line;
}

}  // namespace

std::string Schedule::text() const {
  std::string out = fmt::format(
      "plan 2: world {}, layout {}, mesh {} x {}, reshard {}, compute {}, mode {}, prefetch {}, gradients {}\n",
      options.world, name_of(options.layout), mesh.replicas, mesh.shards, name_of(options.reshard),
      name_of(options.compute), name_of(options.mode), options.prefetch,
      options.local ? "accumulate_local" : "reduce_each");
  for (const std::string& fact : options.facts) out += "fact " + fact + "\n";
  for (const Held& held : parameters) out += parameter_line(held);
  for (const Group& group : groups) out += group_line(*this, group);
  for (const Action& action : round) out += action_line(*this, action, "first round");
  for (const Action& action : later) out += action_line(*this, action, "later round");
  for (const Action& action : step) out += action_line(*this, action, "step");
  for (size_t rank = 0; rank < memory.size(); ++rank) {
    const Memory& m = memory[rank];
    out += fmt::format("memory: rank {} masters {} accumulators {} moments {} frozen {} sums {} slots {} total {}\n",
                       rank, m.masters, m.accumulators, m.moments, m.frozen, m.sums, m.slots, m.total());
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
