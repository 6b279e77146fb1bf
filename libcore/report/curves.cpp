// SPDX-License-Identifier: Apache-2.0
#include "report/curves.h"

#include <algorithm>
#include <cmath>

namespace sf::report {
double number(const Json& record, std::string_view key) {
  return record.get_double(key, kNone);
}

std::vector<const Record*> those_of(const std::vector<Record>& records, std::string_view event) {
  std::vector<const Record*> found;
  for (const Record& record : records)
    if (record.event == event) found.push_back(&record);
  return found;
}

Column column(const std::vector<const Record*>& steps, std::string_view key) {
  Column result;
  for (const Record* step : steps) {
    result.x.push_back(static_cast<double>(step->step));
    result.y.push_back(number(step->fields, key));
    result.any = result.any || std::isfinite(result.y.back());
  }
  return result;
}

// How many steps a smoothed point looks back on.
double window_of(size_t steps) {
  return std::clamp(static_cast<double>(steps) / 25, 1.0, 200.0);
}

std::vector<double> resumes(const std::vector<Record>& records) {
  std::vector<double> marks;
  for (const Record& record : records)
    if (record.event == "run" && record.step > 0) marks.push_back(static_cast<double>(record.step));
  return marks;
}

// Raw values behind their smoothed line.
LineChart curve(const std::string& title, const std::string& unit, const Column& values, int colour, bool smooth) {
  LineChart chart{.title = title, .x_label = "step", .y_label = unit};
  Series raw = thinned({.x = values.x, .y = values.y, .faint = true, .colour = colour}, kMostPoints);
  double window = window_of(values.x.size());
  Series line = thinned({.x = values.x, .y = smoothed(values.y, window), .colour = colour}, kMostPoints);
  line.low.clear();
  line.high.clear();
  if (!smooth) {  // a value that is set, not measured
    raw.faint = false;
    chart.series = {raw};
    return chart;
  }
  chart.series = {raw, line};
  return chart;
}

void add_curve(std::vector<Chart>& charts, const std::vector<Record>& records, const char* key, LineChart chart,
               bool from_zero) {
  chart.from_zero = from_zero;
  chart.marks = resumes(records);
  charts.push_back({.name = key, .svg = line_chart(chart)});
}

}  // namespace sf::report
