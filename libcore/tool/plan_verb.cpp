// SPDX-License-Identifier: Apache-2.0
// sf-shard plan, and how any verb prints its plan.
#include <fmt/core.h>

#include "app/ranks.h"
#include "app/verdict.h"
#include "base/error.h"
#include "config/apply.h"
#include "tool/memory_limit.h"
#include "tool/plan_advice.h"
#include "tool/plan_request.h"
#include "tool/verbs.h"

namespace sf::tool {
namespace {

constexpr int kMostRanks = 65536;

void print_plan(app::Invocation& invocation, const PlanReport& report, const std::vector<Advice>& advice) {
  std::vector<std::string> lines = advice_lines(report, advice);
  if (invocation.json_output()) {
    Json json = plan_json(report), list = Json::array();
    for (const Advice& one : advice)
      list.push(Json::object().set("change", one.change).set("resident", one.resident).set("fits", one.fits));
    invocation.result(json.set("advice", std::move(list)).dump());
  } else {
    std::string text = plan_text(report);
    if (!lines.empty()) text += "\nwhat would help, the most first\n";
    for (const std::string& line : lines) text += "  " + line + "\n";
    text.pop_back();
    invocation.result(text);
  }
  uint64_t missing = report.missing();
  if (missing == 0) return;
  int rank = report.fullest_rank();
  throw app::Verdict(Exit::kConfig,
                     fmt::format("does not fit: rank {} needs {} bytes and may use {} ({}): {} bytes too many{}", rank,
                                 report.totals[static_cast<size_t>(rank)].resident, report.request.memory,
                                 report.request.memory_origin, missing,
                                 lines.empty() ? "" : "; what would help most: " + lines.front()));
}

}  // namespace

int plan_by(app::Invocation& invocation, int world, const RequestOf& request_of) {
  config::Settings& settings = invocation.settings();
  const config::Settings given = settings;  // before anything of it is applied
  PlanRequest request = request_of(settings, world);
  app::settle_settings(invocation);
  PlanReport report = make_report(std::move(request));
  std::vector<Advice> advice;
  if (report.missing() > 0) advice = advise(report, given, request_of);
  print_plan(invocation, report, advice);
  return 0;
}

int shard_plan_verb(app::Invocation& invocation) {
  return plan_by(invocation, app::ranks_from_text(invocation.get("ranks", "1"), kMostRanks),
                 [](config::Settings& settings, int world) {
                   PlanRequest request = plan_request(settings, world);
                   config::Apply limits(settings, "every rank", "tool");
                   limits.word("plan.memory");
                   limits.word("plan.bandwidth");
                   set_limits(request, bytes_of_setting(settings, "plan.memory"),
                              bytes_of_setting(settings, "plan.bandwidth"));
                   apply_modes(settings, request);
                   return request;
                 });
}

}  // namespace sf::tool
