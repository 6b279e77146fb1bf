// SPDX-License-Identifier: Apache-2.0
#include "tool/plan_advice.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace sf::tool {
namespace {

struct Change {
  std::string name;
  std::vector<std::string> assignments;
  int world;
};

// Only changes of keys that this verb reads and that say something new.
std::vector<Change> changes_of(const PlanReport& report, const config::Settings& settings) {
  int world = report.request.options.world;
  std::vector<Change> changes;
  auto set = [&](const std::string& assignment) {
    size_t equals = assignment.find('=');
    if (settings.shown(assignment.substr(0, equals)) != assignment.substr(equals + 1))
      changes.push_back({assignment, {assignment}, world});
  };
  for (const char* mode : {"recompute", "offload"}) set(std::string("engine.mode=") + mode);
  set("engine.compute_dtype=bf16");
  for (const char* backend : {"fsdp2", "fsdp1"}) set(std::string("shard.backend=") + backend);
  set("training.shard_frozen_tables=true");
  if (int64_t rows = report.request.rows, batches = report.request.load.micro_batches; rows > 1) {
    std::string half = fmt::format("training.batch_size={}", (rows + 1) / 2);
    std::string twice = fmt::format("training.micro_batches={}", batches * rows / ((rows + 1) / 2));
    changes.push_back({half + " with " + twice, {half, twice}, world});
  }
  changes.push_back({fmt::format("--ranks {}", 2 * world), {}, 2 * world});
  return changes;
}

uint64_t fullest(const PlanReport& report) {
  return report.totals[static_cast<size_t>(report.fullest_rank())].resident;
}

void try_change(const PlanReport& report, config::Settings settings, const Change& change, const RequestOf& request_of,
                std::vector<Advice>& advice) {
  try {
    for (const std::string& assignment : change.assignments) settings.set(assignment, "a change");
    PlanRequest request = request_of(settings, change.world);
    uint64_t limit = request.memory, then = fullest(make_report(std::move(request)));
    if (then < fullest(report)) advice.push_back({change.name, then, then <= limit});
  } catch (const Error&) {
    // Settings that exclude each other: no advice.
  }
}

// Of a rank, where all of them share a host.
uint64_t share(const plan::TableCost& cost, int world) {
  return cost.peak + cost.host / static_cast<uint64_t>(world);
}

// What is at rest and what is gathered of a table, against the way it lives now.
void try_residencies(const PlanReport& report, std::vector<Advice>& advice) {
  int rank = report.fullest_rank(), world = report.request.options.world;
  for (const TableRow& row : report.tables) {
    plan::TableCost now = plan::cost_of(row.use, row.now, rank, world);
    for (plan::Residency residency : plan::kResidencies) {
      if (residency == row.now || !plan::misfit(row.table, residency).empty()) continue;
      plan::TableCost cost = plan::cost_of(row.use, residency, rank, world);
      uint64_t before = share(now, world), after = share(cost, world);
      if (after >= before) continue;
      uint64_t then = fullest(report) - (before - after);
      advice.push_back({fmt::format("residency {} of {}", plan::name_of(residency), row.table.parameter), then,
                        then <= report.request.memory});
    }
  }
}

}  // namespace

std::vector<Advice> advise(const PlanReport& report, const config::Settings& settings, const RequestOf& request_of) {
  std::vector<Advice> advice;
  for (const Change& change : changes_of(report, settings)) try_change(report, settings, change, request_of, advice);
  try_residencies(report, advice);
  std::stable_sort(advice.begin(), advice.end(),
                   [](const Advice& a, const Advice& b) { return a.resident < b.resident; });
  return advice;
}

std::vector<std::string> advice_lines(const PlanReport& report, const std::vector<Advice>& advice) {
  std::vector<std::string> lines;
  for (const Advice& one : advice)
    lines.push_back(fmt::format("{}: {:.1f} MiB less, {}", one.change,
                                static_cast<double>(fullest(report) - one.resident) / 1048576.0,
                                one.fits ? "fits" : "does not fit yet"));
  return lines;
}

}  // namespace sf::tool
