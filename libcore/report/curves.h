// SPDX-License-Identifier: Apache-2.0
// Fields of records as curves. Private to this room.
#pragma once
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "report/report.h"
#include "report/svg.h"

namespace sf::report {

inline constexpr size_t kMostPoints = 600;  // of a line
inline constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double number(const Json& record, std::string_view key);  // kNone if it is none
std::vector<const Record*> those_of(const std::vector<Record>& records, std::string_view event);

// One value a record, kNone where the record has none.
struct Column {
  std::vector<double> x, y;
  bool any = false;
};
Column column(const std::vector<const Record*>& steps, std::string_view key);

// How many steps a smoothed point looks back on.
double window_of(size_t steps);
// Steps at which a run was resumed.
std::vector<double> resumes(const std::vector<Record>& records);
// Raw values behind their smoothed line; or, not smooth, values that are set and not measured.
LineChart curve(const std::string& title, const std::string& unit, const Column& values, int colour, bool smooth);
void add_curve(std::vector<Chart>& charts, const std::vector<Record>& records, const char* key, LineChart chart,
               bool from_zero);

// What a run that learns from rewards shows beside the curves of every run.
void add_rewards(std::vector<Chart>& charts, const std::vector<Record>& records);

}  // namespace sf::report
