// SPDX-License-Identifier: Apache-2.0
// A plan as people and programs read it: what a run of these shapes would hold, send and wait for on every rank.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "arch/model_spec.h"
#include "base/json.h"
#include "plan/predict.h"
#include "plan/residency.h"
#include "plan/schedule.h"

namespace sf::tool {

struct PlanRequest {
  std::string algorithm;  // "eagle3", "dflash", "sft"
  arch::ModelSpec spec;   // as it trains
  plan::ScheduleOptions options;
  plan::Load load;
  // What forward and backward take under a schedule: load.work_bytes. Not set: nobody knows.
  std::function<uint64_t(const plan::Schedule& schedule)> work;
  int64_t rows = 1, width = 0;  // of a micro-batch at most
  int64_t lookups = 0;          // rows of a frozen table that one micro-batch takes by id
  double bandwidth = 0;         // bytes a second that one rank receives
  uint64_t memory = 0;          // bytes one rank may use; 0: unknown
  std::string memory_origin;    // "--memory", "cgroup limit / 4 ranks"
};

struct TableRow {
  arch::Table table;
  plan::TableUse use;
  plan::Residency now = plan::Residency::kReplicate;
};

struct PlanReport {
  PlanRequest request;
  plan::Schedule schedule;
  std::vector<plan::Totals> totals;    // by rank
  std::vector<plan::Traffic> traffic;  // by rank
  std::vector<TableRow> tables;

  int fullest_rank() const;  // the one with the most resident bytes
  // Bytes that are missing on the fullest rank; 0 if it fits or the limit is unknown.
  uint64_t missing() const;
};

PlanReport make_report(PlanRequest request);  // request.load.work_bytes is filled in
std::string plan_text(const PlanReport& report);
Json plan_json(const PlanReport& report);

}  // namespace sf::tool
