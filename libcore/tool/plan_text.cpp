// SPDX-License-Identifier: Apache-2.0
// The plan for people: at most 100 columns, bytes in MiB, runs of equal segments in one line.
#include <fmt/format.h>

#include <algorithm>

#include "tool/plan_report.h"

namespace sf::tool {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr int kMostColumns = 4;

// One digit behind the point; two that count for what would read 0.0.
std::string mib(uint64_t bytes) {
  double value = static_cast<double>(bytes) / kMiB;
  return bytes == 0 ? "0" : value < 0.05 ? fmt::format("{:.2g}", value) : fmt::format("{:.1f}", value);
}
std::string millions(int64_t elements) {
  return fmt::format("{:.1f} M", static_cast<double>(elements) / 1e6);
}

std::string_view layout_word(plan::Layout layout) {
  return layout == plan::Layout::kDim0 ? "fsdp2" : layout == plan::Layout::kFlat ? "fsdp1" : "replicate";
}

// "layers.0" and "layers.1", with equal numbers, are one line of the table.
std::string stem_of(std::string_view name) {
  size_t dot = name.rfind('.');
  bool counted = dot != std::string_view::npos && dot + 1 < name.size() &&
                 std::all_of(name.begin() + static_cast<int64_t>(dot) + 1, name.end(),
                             [](char c) { return c >= '0' && c <= '9'; });
  return std::string(counted ? name.substr(0, dot) : name);
}

// Lines that say the same of consecutive segments of one stem become "layers.0 to layers.4 (5)".
struct Line {
  std::string name, rest;
};
std::string folded(const std::vector<Line>& lines, std::string_view indent, size_t width) {
  std::string text;
  for (size_t i = 0; i < lines.size();) {
    size_t end = i + 1;
    while (end < lines.size() && lines[end].rest == lines[i].rest && stem_of(lines[end].name) == stem_of(lines[i].name))
      ++end;
    std::string name = end - i == 1
                           ? lines[i].name
                           : fmt::format("{} to {} ({})", lines[i].name,
                                         lines[end - 1].name.substr(stem_of(lines[end - 1].name).size()), end - i);
    text += fmt::format("{}{:<{}}{}\n", indent, name, width, lines[i].rest);
    i = end;
  }
  return text;
}

std::string head_text(const PlanReport& report) {
  const PlanRequest& r = report.request;
  const plan::Schedule& s = report.schedule;
  int64_t trainable = 0, frozen = 0;
  for (const arch::Parameter& parameter : r.spec.parameters)
    (parameter.trainable ? trainable : frozen) += numel(parameter.shape);
  int64_t rounds = plan::rounds_of(s, r.load);
  std::string text = fmt::format("{} on {} rank{}: {}, compute {}, mode {}\n", r.algorithm, r.options.world,
                                 r.options.world == 1 ? "" : "s", layout_word(r.options.layout),
                                 r.options.compute == Dtype::kBF16 ? "bf16" : "fp32",
                                 r.options.modes.empty() ? plan::name_of(r.options.mode) : "by segment");
  text += fmt::format("  plan        sha256 {}\n", s.digest());
  text += fmt::format("  parameters  {} trainable, {} frozen\n", millions(trainable), millions(frozen));
  text += fmt::format("  window      {} micro-batches of {} x {} tokens, {} round{}\n", r.load.micro_batches, r.rows,
                      r.width, rounds, rounds == 1 ? "" : "s");
  return text;
}

// Backward begins with the last segment: its graph is kept in any mode.
std::string_view mode_word(const plan::Schedule& s, const plan::Group& group) {
  if (!group.needs_graph) return "-";
  return plan::name_of(&group == &s.groups.back() ? plan::Mode::kKeep : group.mode);
}

std::string groups_text(const plan::Schedule& s) {
  std::string text = fmt::format("\n{:<28}{:>9}{:>11}{:>11}{:>12}{:>14}{:>11}\n", "group", "members", "elements",
                                 "slot MiB", "gather MiB", "gradient MiB", "backward");
  std::vector<Line> lines;
  for (const plan::Group& group : s.groups) {
    int64_t elements = 0;
    for (const plan::Member& member : group.members) elements += numel(s.parameters[member.parameter].shape);
    uint64_t gradient = group.fold_offsets.empty() ? 0 : group.fold_offsets.back() * sizeof(float);
    std::string name = group.name + (s.options.root.contains(group.name) ? " (root)" : "");
    lines.push_back(
        {name, fmt::format("{:>9}{:>11}{:>11}{:>12}{:>14}{:>11}", group.members.size(), millions(elements),
                           mib(group.slot_bytes), mib(group.gathered_bytes), mib(gradient), mode_word(s, group))});
  }
  return text + folded(lines, "", 28);
}

// A line for each group and phase, with what is gathered before it and folded behind it.
struct Visit {
  std::string group;
  bool backward = false;
  std::string gather = "-", fold = "-";
};

std::vector<Visit> visits_of(const plan::Schedule& s, const std::vector<plan::Action>& actions) {
  std::vector<Visit> visits;
  for (const plan::Action& action : actions) {
    bool spread = action.kind == plan::Action::Kind::kSpread;
    std::string group = spread ? "new masters" : s.groups[action.group].name;
    bool fold = action.kind == plan::Action::Kind::kFold;
    auto same = [&](const Visit& visit) { return visit.group == group && visit.backward == action.backward; };
    auto found = std::find_if(visits.begin(), visits.end(), same);
    if (found == visits.end()) found = visits.insert(visits.end(), {group, action.backward});
    (fold ? found->fold : found->gather) = mib(action.bytes);
  }
  return visits;
}

std::string actions_text(const plan::Schedule& s, const std::vector<plan::Action>& actions, std::string_view title) {
  if (s.options.world == 1 || actions.empty()) return "";
  std::vector<Line> lines;
  for (const Visit& visit : visits_of(s, actions))
    lines.push_back({visit.group, fmt::format("{:<9}{:>13}{:>13}", visit.backward ? "backward" : "forward",
                                              visit.gather, visit.fold)});
  return fmt::format("\n{:<28}{:<9}{:>13}{:>13}\n", title, "", "gather MiB", "fold MiB") + folded(lines, "", 28);
}

// All ranks of a small world; else the fullest and the emptiest.
std::vector<size_t> shown_ranks(const PlanReport& report) {
  std::vector<size_t> ranks;
  size_t world = report.totals.size(), most = static_cast<size_t>(report.fullest_rank()), least = most;
  if (world > kMostColumns) {
    for (size_t r = 0; r < world; ++r)
      if (report.totals[r].resident < report.totals[least].resident) least = r;
    ranks.push_back(most);
    if (least != most) ranks.push_back(least);
    return ranks;
  }
  for (size_t r = 0; r < world; ++r) ranks.push_back(r);
  return ranks;
}

std::string memory_text(const PlanReport& report) {
  std::vector<size_t> ranks = shown_ranks(report);
  std::string text = fmt::format("\n{:<28}", "MiB of a rank");
  for (size_t r : ranks) text += fmt::format("{:>13}", fmt::format("rank {}", r));
  auto row = [&](std::string_view name, auto&& bytes) {
    text += fmt::format("\n{:<28}", name);
    for (size_t r : ranks) text += fmt::format("{:>13}", mib(bytes(r)));
  };
  const PlanRequest& request = report.request;
  const std::vector<plan::Memory>& memory = report.schedule.memory;
  row("  master weights", [&](size_t r) { return memory[r].masters; });
  row("  gradients", [&](size_t r) { return memory[r].accumulators; });
  row("  moments", [&](size_t r) { return memory[r].moments; });
  row("  frozen", [&](size_t r) { return memory[r].frozen; });
  row("  slots", [&](size_t r) { return memory[r].slots; });
  if (memory[0].sums > 0) row("  sums of a window", [&](size_t r) { return memory[r].sums; });
  if (request.load.constant_bytes) row("  vocabulary maps", [&](size_t) { return request.load.constant_bytes; });
  if (request.load.sampler_bytes) row("  sampler and its caches", [&](size_t) { return request.load.sampler_bytes; });
  row("at rest", [&](size_t r) { return report.totals[r].at_rest; });
  if (request.load.evaluation_bytes)
    row("  an evaluation, at most", [&](size_t) { return request.load.evaluation_bytes; });
  row(request.load.evaluation_bytes ? "  that, or work if more" : "  micro-batches, work",
      [&](size_t r) { return report.totals[r].peak - report.totals[r].at_rest; });
  row("peak allocated", [&](size_t r) { return report.totals[r].peak; });
  if (request.load.copies)
    row("  copy of a checkpoint",
        [&](size_t r) { return plan::checkpoint_bytes(report.schedule, static_cast<int>(r)); });
  row("host, outside tensors", [&](size_t r) { return report.totals[r].host; });
  row("disk, checkpoints", [&](size_t r) { return report.totals[r].disk; });
  row("most in memory at one time", [&](size_t r) { return report.totals[r].resident; });
  row("received in a step", [&](size_t r) { return report.traffic[r].bytes(); });
  if (!request.work) text += fmt::format("\nactivations of {} are not in the peak", request.algorithm);
  return text + "\n";
}

std::string wire_text(const PlanReport& report) {
  if (report.request.options.world == 1) return "";
  uint64_t most = 0;
  for (const plan::Traffic& traffic : report.traffic) most = std::max(most, traffic.bytes());
  const plan::Traffic& first = report.traffic.front();
  return fmt::format("\n{} gathers and {} folds a step; {:.3f} s of communication at {:.1f} GB/s\n", first.gathers,
                     first.folds, static_cast<double>(most) / report.request.bandwidth, report.request.bandwidth / 1e9);
}

std::string signed_mib(uint64_t now, uint64_t base) {
  double change = (static_cast<double>(now) - static_cast<double>(base)) / kMiB;
  const std::string text = fmt::format("{:+.1f}", change);
  return text.substr(1) == "0.0" ? "" : text;
}

std::string cost_line(std::string_view name, bool now, const plan::TableCost& cost, const plan::TableCost& whole) {
  std::string line = fmt::format("  {:<14}{}{:>11}{:>10}{:>11}{:>10}{:>13}", name, now ? "*" : " ", mib(cost.at_rest),
                                 signed_mib(cost.at_rest, whole.at_rest), mib(cost.peak),
                                 signed_mib(cost.peak, whole.peak), mib(cost.wire));
  if (cost.host) line += fmt::format("  {} once a host", mib(cost.host));
  return line + "\n";
}

// The costs on rank 0 of every residency that fits, and why the others do not.
std::string table_text(const PlanReport& report, const TableRow& row) {
  int world = report.request.options.world;
  std::string text = fmt::format("{} [{}, {}] {}\n", row.table.parameter, row.use.rows, row.use.width,
                                 row.use.type == Dtype::kBF16 ? "bf16" : "fp32");
  plan::TableCost whole = plan::cost_of(row.use, plan::Residency::kReplicate, 0, world);
  for (plan::Residency residency : plan::kResidencies)
    if (plan::misfit(row.table, residency).empty())
      text +=
          cost_line(plan::name_of(residency), residency == row.now, plan::cost_of(row.use, residency, 0, world), whole);
  return text;
}

// The reference's arithmetic: all tables one way.
std::string all_tables_text(const PlanReport& report) {
  if (report.tables.size() < 2) return "";
  int world = report.request.options.world;
  std::string text = fmt::format("all {} tables\n", report.tables.size());
  plan::TableCost whole;
  auto add = [](plan::TableCost& sum, const plan::TableCost& cost) {
    sum.at_rest += cost.at_rest, sum.peak += cost.peak, sum.wire += cost.wire, sum.host += cost.host;
  };
  auto sum_of = [&](auto&& residency_of) {
    plan::TableCost sum;
    for (const TableRow& row : report.tables) add(sum, plan::cost_of(row.use, residency_of(row.table), 0, world));
    return sum;
  };
  whole = sum_of([](const arch::Table&) { return plan::Residency::kReplicate; });
  for (plan::Residency residency : {plan::Residency::kReplicate, plan::Residency::kShard, plan::Residency::kHost})
    text += cost_line(plan::name_of(residency), false, sum_of([&](const arch::Table&) { return residency; }), whole);
  return text + cost_line("rows, stream", false, sum_of([](const arch::Table& table) {
                            if (table.looked_up && table.multiplied) return plan::Residency::kRowsStream;
                            return table.looked_up ? plan::Residency::kRows : plan::Residency::kStream;
                          }),
                          whole);
}

std::string tables_text(const PlanReport& report) {
  if (report.tables.empty()) return "";
  std::string text = fmt::format("\n{:<17}{:>11}{:>10}{:>11}{:>10}{:>13}\n", "frozen tables, MiB", "at rest", "",
                                 "peak", "", "wire a step");
  for (const TableRow& row : report.tables) text += table_text(report, row);
  return text + all_tables_text(report) + "* as planned; changes are against replicate\n";
}

}  // namespace

std::string plan_text(const PlanReport& report) {
  const plan::Schedule& s = report.schedule;
  std::string text = head_text(report) + groups_text(s) + actions_text(s, s.round, "first round of a window");
  if (plan::rounds_of(s, report.request.load) > 1) text += actions_text(s, s.later, "each further round");
  text += actions_text(s, s.step, "end of a window");
  return text + memory_text(report) + wire_text(report) + tables_text(report);
}

}  // namespace sf::tool
