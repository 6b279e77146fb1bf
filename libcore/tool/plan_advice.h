// SPDX-License-Identifier: Apache-2.0
// What would make a run fit: every change is tried, none is assumed.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "config/settings.h"
#include "tool/plan_report.h"

namespace sf::tool {

struct Advice {
  std::string change;     // "engine.mode=recompute"
  uint64_t resident = 0;  // of the fullest rank then
  bool fits = false;
};

// The request that these settings and ranks give; it applies them. A change for which it throws is left out.
using RequestOf = std::function<PlanRequest(config::Settings& settings, int world)>;
// Changes that lower what the fullest rank holds, the best first: recomputing, the other layout, residencies of frozen
// tables, smaller micro-batches, more ranks.
std::vector<Advice> advise(const PlanReport& report, const config::Settings& settings, const RequestOf& request_of);

// "engine.mode=recompute: 12.0 GiB less, fits"; one line each.
std::vector<std::string> advice_lines(const PlanReport& report, const std::vector<Advice>& advice);

}  // namespace sf::tool
