// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "report/curves.h"

namespace sf::report {
namespace {

constexpr size_t kMostColumns = 90;  // of a stack
constexpr size_t kMostUnrolled = 9;  // lines of one chart
constexpr double kMiB = 1048576;

// One line for each unrolled step, from a dark to a light colour.
void add_unrolled(std::vector<Chart>& charts, const std::vector<Record>& records,
                  const std::vector<const Record*>& steps, const std::string& key, Chart chart, LineChart lines) {
  for (size_t i = 0; i < kMostUnrolled; ++i) {
    Column values = column(steps, fmt::format("{}_{}", key, i));
    if (!values.any) break;
    std::vector<double> smooth = smoothed(values.y, window_of(steps.size()));
    Series line = thinned({.name = fmt::format("position {}", i + 1), .x = values.x, .y = smooth}, kMostPoints);
    line.low.clear();
    line.high.clear();
    lines.series.push_back(std::move(line));
  }
  size_t count = lines.series.size();
  if (count == 0) return;
  for (size_t i = 0; i < count; ++i)
    lines.series[i].colour = 100 + static_cast<int>(count > 1 ? i * std::min<size_t>(8, 2 * count) / (count - 1) : 0);
  lines.from_zero = true;
  lines.marks = resumes(records);
  chart.svg = line_chart(lines);
  charts.push_back(std::move(chart));
}

std::string label_of(const Json& record, size_t index) {
  return record.get_string("label", fmt::format("draft {}", index + 1));
}

// What came before is grey, what counts is the first colour.
std::vector<int> before_and_after(size_t count) {
  if (count < 2) return {0};
  std::vector<int> colours = {7};
  for (size_t i = 1; i + 1 < count; ++i) colours.push_back(static_cast<int>(i));
  colours.push_back(0);
  return colours;
}

void add_acceptance(std::vector<Chart>& charts, const std::vector<Json>& acceptance) {
  if (acceptance.empty()) return;
  BarChart lengths{.title = "Acceptance length", .y_label = "tokens a verification", .names = {"acceptance length"}};
  BarChart rates{.title = "Acceptance rate by position", .y_label = "share accepted"};
  lengths.values.resize(1);
  size_t positions = 0;
  for (const Json& record : acceptance)
    if (const Json* list = record.find("positions")) positions = std::max(positions, list->as_array().size());
  for (size_t i = 0; i < positions; ++i) rates.groups.push_back(fmt::format("position {}", i + 1));
  for (size_t i = 0; i < acceptance.size(); ++i) {
    const Json& record = acceptance[i];
    lengths.groups.push_back(label_of(record, i));
    lengths.values[0].push_back(number(record, "acceptance_length"));
    lengths.notes.push_back(record.contains("prompts") ? fmt::format("n = {} prompts", record.at("prompts").as_int())
                                                       : "");
    rates.names.push_back(label_of(record, i));
    std::vector<double> row(positions, kNone);
    if (const Json* list = record.find("positions"))
      for (size_t p = 0; p < list->as_array().size(); ++p)
        if (const Json& one = list->as_array()[p]; one.get_int("tried", 1) > 0) row[p] = number(one, "rate");
    rates.values.push_back(std::move(row));
  }
  lengths.colours = rates.colours = before_and_after(acceptance.size());
  charts.push_back(
      {.name = "acceptance",
       .svg = bar_chart(lengths),
       .note = "Tokens committed per verification on held prompts, the bonus token included; 1 is no gain."});
  if (positions > 0) charts.push_back({.name = "acceptance-positions", .svg = bar_chart(rates)});
}

void add_times(std::vector<Chart>& charts, const std::vector<const Record*>& steps) {
  StackChart chart{.title = "Where a step's time goes", .x_label = "step", .y_label = "seconds"};
  std::vector<Column> parts;
  for (const char* name : {"data", "forward", "backward", "communication", "optimizer", "cold_start", "rollout",
                           "reward", "log_probs", "update", "sync", "evaluation", "checkpoint"}) {
    Column part = column(steps, fmt::format("time_{}_s", name));
    if (!part.any) continue;
    chart.names.push_back(name);
    parts.push_back(std::move(part));
  }
  if (parts.empty()) return;
  double whole = 0;
  std::vector<double> sums;
  for (const Column& part : parts) {
    double sum = 0;
    for (double value : part.y) sum += std::isfinite(value) ? value : 0;
    sums.push_back(sum);
    whole += sum;
    Series binned = thinned({.x = part.x, .y = part.y}, kMostColumns);
    chart.x = binned.x;
    chart.values.push_back(binned.y);
  }
  std::string note;
  for (size_t i = 0; i < sums.size(); ++i)
    note +=
        fmt::format("{}{} {:.1f} %", note.empty() ? "" : " · ", chart.names[i], whole > 0 ? 100 * sums[i] / whole : 0);
  charts.push_back({.name = "time", .svg = stack_chart(chart), .note = note + " of the steps' time on rank 0."});
}

void add_memory(std::vector<Chart>& charts, const std::vector<const Record*>& steps) {
  BarChart chart{.title = "Memory of rank 0", .y_label = "MiB", .names = {"predicted", "measured"}};
  chart.decimals = 1;
  chart.colours = before_and_after(2);
  chart.values.resize(2);
  for (const auto& [key, title] : {std::pair{"at_rest", "at rest"}, {"peak", "peak allocated"}}) {
    double most[2] = {kNone, kNone};
    for (size_t i = 0; i < 2; ++i)
      for (double value : column(steps, fmt::format("memory_{}_{}", key, chart.names[i])).y)
        if (!(value <= most[i])) most[i] = std::isfinite(value) ? value : most[i];
    if (!std::isfinite(most[0]) && !std::isfinite(most[1])) continue;
    chart.groups.push_back(title);
    for (size_t i = 0; i < 2; ++i) chart.values[i].push_back(most[i] / kMiB);
  }
  if (!chart.groups.empty()) charts.push_back({.name = "memory", .svg = bar_chart(chart)});
}

}  // namespace

std::vector<Chart> charts_of(const std::vector<Record>& records, const std::vector<Json>& acceptance) {
  std::vector<const Record*> steps = those_of(records, "step");
  std::vector<Chart> charts;
  if (Column served = column(those_of(records, "evaluation"), "acceptance_length"); served.any) {
    add_curve(charts, records, "served", curve("Served acceptance length", "tokens a verification", served, 0, false),
              false);
    charts.back().note = "Held-out prompts, decoded with the draft as it was at that step.";
  }
  if (Column loss = column(steps, "loss"); loss.any) {
    add_curve(charts, records, "loss", curve("Loss", "per supervised token", loss, 0, true), false);
    charts.back().note = "Each step, and smoothed.";
  }
  add_rewards(charts, records);
  add_unrolled(charts, records, steps, "acc",
               {.name = "accuracy", .note = "How often the draft's first choice is the target's. Smoothed."},
               {.title = "Accuracy of each unrolled step", .x_label = "step", .y_label = "share of tokens"});
  add_unrolled(charts, records, steps, "acceptance_rate",
               {.name = "overlap",
                .note = "Probability mass that draft and target share: the rate at which sampling "
                        "would accept. Smoothed."},
               {.title = "Expected acceptance of each unrolled step", .x_label = "step", .y_label = "shared mass"});
  add_acceptance(charts, acceptance);
  add_times(charts, steps);
  add_memory(charts, steps);
  if (Column rate = column(steps, "lr"); rate.any)
    add_curve(charts, records, "lr", curve("Learning rate", "", rate, 4, false), true);
  if (Column norm = column(steps, "grad_norm"); norm.any)
    add_curve(charts, records, "grad_norm", curve("Gradient norm, before clipping", "", norm, 5, true), true);
  return charts;
}

}  // namespace sf::report
