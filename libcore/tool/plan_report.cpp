// SPDX-License-Identifier: Apache-2.0
#include "tool/plan_report.h"

#include <algorithm>

namespace sf::tool {

PlanReport make_report(PlanRequest request) {
  PlanReport report{.request = std::move(request), .schedule = {}, .totals = {}, .traffic = {}, .tables = {}};
  PlanRequest& r = report.request;
  report.schedule = plan::make_schedule(r.spec, r.spec.segments, r.options);
  if (r.work) r.load.work_bytes = r.work(report.schedule);
  for (int rank = 0; rank < r.options.world; ++rank) {
    report.totals.push_back(plan::totals_of(report.schedule, r.load, rank));
    report.traffic.push_back(plan::traffic_of(report.schedule, r.load, rank));
  }
  for (const arch::Table& table : r.spec.tables) {
    const arch::Parameter* parameter = r.spec.find(table.parameter);
    auto held = std::find_if(report.schedule.parameters.begin(), report.schedule.parameters.end(),
                             [&](const plan::Held& one) { return one.name == table.parameter; });
    plan::TableUse use{parameter->shape[0], parameter->shape[1], held->compute, table.looked_up ? r.lookups : 0,
                       plan::rounds_of(report.schedule, r.load)};
    auto now = r.options.tables.find(table.parameter);
    plan::Residency residency = now == r.options.tables.end() ? plan::Residency::kShard : now->second;
    report.tables.push_back({table, use, residency});
    if (!held->exchanged) continue;
    for (int rank = 0; rank < r.options.world; ++rank)
      report.traffic[static_cast<size_t>(rank)].table_bytes +=
          plan::cost_of(use, residency, rank, r.options.world).wire;
  }
  return report;
}

int PlanReport::fullest_rank() const {
  auto fuller = [](const plan::Totals& a, const plan::Totals& b) { return a.resident < b.resident; };
  return static_cast<int>(std::max_element(totals.begin(), totals.end(), fuller) - totals.begin());
}

uint64_t PlanReport::missing() const {
  uint64_t wanted = totals[static_cast<size_t>(fullest_rank())].resident;
  return request.memory > 0 && wanted > request.memory ? wanted - request.memory : 0;
}

}  // namespace sf::tool
