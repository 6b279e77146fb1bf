// SPDX-License-Identifier: Apache-2.0
// The plan for programs: every interval and every collective; all bytes are whole numbers.
#include "tool/plan_report.h"

namespace sf::tool {
namespace {

Json shape_json(const Shape& shape) {
  Json out = Json::array();
  for (int64_t extent : shape) out.push(extent);
  return out;
}

Json intervals_json(const std::vector<plan::Interval>& intervals) {
  Json out = Json::array();
  for (const plan::Interval& interval : intervals) out.push(Json(Json::Array{Json(interval.lo), Json(interval.hi)}));
  return out;
}

Json parameters_json(const plan::Schedule& s) {
  Json out = Json::array();
  for (const plan::Held& held : s.parameters)
    out.push(Json::object()
                 .set("name", held.name)
                 .set("shape", shape_json(held.shape))
                 .set("trainable", held.trainable)
                 .set("replicated", held.replicated)
                 .set("intervals", intervals_json(held.intervals))
                 .set("owned", intervals_json(held.owned)));
  return out;
}

Json groups_json(const plan::Schedule& s) {
  Json out = Json::array();
  for (const plan::Group& group : s.groups) {
    Json members = Json::array();
    for (const plan::Member& member : group.members) members.push(s.parameters[member.parameter].name);
    uint64_t gradient = group.fold_offsets.empty() ? 0 : group.fold_offsets.back() * sizeof(float);
    out.push(Json::object()
                 .set("name", group.name)
                 .set("members", std::move(members))
                 .set("needs_graph", group.needs_graph)
                 .set("mode", plan::name_of(group.mode))
                 .set("slot_begin", group.slot_begin)
                 .set("slot_bytes", group.slot_bytes)
                 .set("gathered_bytes", group.gathered_bytes)
                 .set("gradient_bytes", gradient));
  }
  return out;
}

Json actions_json(const plan::Schedule& s, const std::vector<plan::Action>& actions) {
  Json out = Json::array();
  for (const plan::Action& action : actions) {
    using Kind = plan::Action::Kind;
    bool spread = action.kind == Kind::kSpread;
    out.push(Json::object()
                 .set("call", spread                         ? "spread"
                              : action.kind == Kind::kGather ? "gather"
                                                             : "fold")
                 .set("group", spread ? Json() : Json(s.groups[action.group].name))
                 .set("phase", action.backward ? "backward" : "forward")
                 .set("bytes", action.bytes));
  }
  return out;
}

Json ranks_json(const PlanReport& report) {
  Json out = Json::array();
  for (size_t r = 0; r < report.totals.size(); ++r) {
    const plan::Memory& memory = report.schedule.memory[r];
    const plan::Totals& totals = report.totals[r];
    const plan::Traffic& traffic = report.traffic[r];
    out.push(Json::object()
                 .set("rank", static_cast<int64_t>(r))
                 .set("masters", memory.masters)
                 .set("accumulators", memory.accumulators)
                 .set("moments", memory.moments)
                 .set("frozen", memory.frozen)
                 .set("slots", memory.slots)
                 .set("sums", memory.sums)
                 .set("at_rest", totals.at_rest)
                 .set("peak_allocated", totals.peak)
                 .set("host", totals.host)
                 .set("disk", totals.disk)
                 .set("resident", totals.resident)
                 .set("gathers", traffic.gathers)
                 .set("folds", traffic.folds)
                 .set("received_bytes", traffic.bytes())
                 .set("communication_s", static_cast<double>(traffic.bytes()) / report.request.bandwidth));
  }
  return out;
}

Json tables_json(const PlanReport& report) {
  Json out = Json::array();
  for (const TableRow& row : report.tables) {
    Json costs = Json::object();
    for (plan::Residency residency : plan::kResidencies) {
      std::string why = plan::misfit(row.table, residency);
      plan::TableCost cost = plan::cost_of(row.use, residency, 0, report.request.options.world);
      costs.set(plan::name_of(residency), why.empty() ? Json::object()
                                                            .set("at_rest", cost.at_rest)
                                                            .set("peak", cost.peak)
                                                            .set("wire", cost.wire)
                                                            .set("host", cost.host)
                                                      : Json::object().set("misfit", why));
    }
    out.push(Json::object()
                 .set("name", row.table.parameter)
                 .set("rows", row.use.rows)
                 .set("width", row.use.width)
                 .set("now", plan::name_of(row.now))
                 .set("residencies", std::move(costs)));
  }
  return out;
}

}  // namespace

Json plan_json(const PlanReport& report) {
  const PlanRequest& r = report.request;
  const plan::Schedule& s = report.schedule;
  return Json::object()
      .set("algorithm", r.algorithm)
      .set("world", r.options.world)
      .set("digest", s.digest())
      .set("micro_batches", r.load.micro_batches)
      .set("rounds", plan::rounds_of(s, r.load))
      .set("rows", r.rows)
      .set("width", r.width)
      .set("parameters", parameters_json(s))
      .set("groups", groups_json(s))
      .set("first_round", actions_json(s, s.round))
      .set("further_rounds", actions_json(s, s.later))
      .set("step", actions_json(s, s.step))
      .set("ranks", ranks_json(report))
      .set("tables", tables_json(report))
      .set("activations_predicted", static_cast<bool>(r.work))
      .set("memory_limit", r.memory > 0 ? Json(r.memory) : Json())
      .set("missing", report.missing());
}

}  // namespace sf::tool
