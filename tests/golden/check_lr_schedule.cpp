// SPDX-License-Identifier: Apache-2.0
// Every rate of every row, within 1e-15 of the base rate: the reference runs a recursion, ours is its closed form. The
// rows go three updates past the run's total.
#include <cmath>

#include "golden.h"
#include "train/schedule.h"

namespace sf::golden {
namespace {

Outcome check_row(const Json& row, const std::string& name) {
  train::Schedule schedule{train::decay_from_name(row.at("scheduler").as_string()), row.at("base_lr").as_double(),
                           row.at("warmup_ratio").as_double(), row.at("total_steps").as_int(), true};
  train::check(schedule);
  const auto& rates = row.at("lr_used_at_step_1_to_n").as_array();
  for (size_t t = 0; t < rates.size(); ++t) {
    double found = train::rate(schedule, static_cast<int64_t>(t)), wanted = rates[t].as_double();
    if (!(std::abs(found - wanted) <= 1e-15 * schedule.base))
      return Outcome::failed(name + ": update " + std::to_string(t) + " is " + double_text(found) + ", wanted " +
                             double_text(wanted));
  }
  return Outcome::passed();
}

Outcome check(const Case& c) {
  const auto& rows = c.json.at("rows").as_array();
  if (rows.empty()) return Outcome::failed("no rows");
  for (size_t i = 0; i < rows.size(); ++i)
    if (Outcome row = check_row(rows[i], "row " + std::to_string(i)); row.verdict != Outcome::kPassed) return row;
  return Outcome::passed();
}

const bool registered = add("lr_schedule", check);

}  // namespace
}  // namespace sf::golden
