// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "report/curves.h"

namespace sf::report {
namespace {

// Answers to what is held out. Between two evaluations there is none, and none is drawn but the line between them.
void add_held(std::vector<Chart>& charts, const std::vector<Record>& records) {
  Series right{.name = "correct, 95 % band", .x = {}, .y = {}, .low = {}, .high = {}, .dots = true, .colour = 0};
  Series readable{.name = "readable", .x = {}, .y = {}, .low = {}, .high = {}, .dots = true, .colour = 1};
  Series of_readable{.name = "correct of readable", .x = {}, .y = {}, .low = {}, .high = {}, .dots = true, .colour = 2};
  double n = 0;
  for (const Record* record : those_of(records, "step")) {
    n = number(record->fields, "val/n");
    const double seen = number(record->fields, "val/readable"), correct = number(record->fields, "val/correct");
    if (!(n > 0) || !std::isfinite(seen) || !std::isfinite(correct)) continue;
    const auto x = static_cast<double>(record->step);
    right.x.push_back(x), right.y.push_back(100 * correct / n);
    right.low.push_back(100 * number(record->fields, "val/acc_low"));
    right.high.push_back(100 * number(record->fields, "val/acc_high"));
    readable.x.push_back(x), readable.y.push_back(100 * seen / n);
    if (seen > 0) of_readable.x.push_back(x), of_readable.y.push_back(100 * correct / seen);
  }
  if (right.x.empty()) return;
  LineChart chart{.title = "Held out, greedy", .x_label = "step", .y_label = "% of answers"};
  chart.series = {std::move(right), std::move(readable), std::move(of_readable)};
  chart.from_zero = true;
  chart.y_most = 100;
  chart.marks = resumes(records);
  charts.push_back({.name = "held",
                    .svg = line_chart(chart),
                    .note = "A gain in what is readable is one of form, a gain in what is correct of it one of matter. "
                            "The band is each point's own."});
}

}  // namespace

void add_rewards(std::vector<Chart>& charts, const std::vector<Record>& records) {
  const std::vector<const Record*> steps = those_of(records, "step");
  add_held(charts, records);
  struct Curve {
    const char *key, *name, *title, *unit, *note;
    int colour;
    bool from_zero;
  };
  static constexpr Curve kCurves[] = {
      {"grpo/drawn_score", "reward", "Reward", "mean score of a response", "Of all responses drawn for the step.", 0,
       false},
      {"training/rollout_probs_diff_mean", "mismatch", "Sampler and trainer apart", "mean difference of probabilities",
       "The same tokens under the same adapter, computed twice.", 3, true},
      {"response_length/mean", "length", "Length of a response", "tokens, mean", "", 6, true},
      {"actor/entropy", "entropy", "Entropy", "nats a token", "", 2, true},
      {"actor/grad_norm", "grad_norm", "Gradient norm, before clipping", "", "", 5, true},
      {"actor/lr", "lr", "Learning rate", "", "", 4, true}};
  for (const Curve& one : kCurves) {
    const Column values = column(steps, one.key);
    if (!values.any) continue;
    const bool measured = std::string_view(one.name) != "lr";
    add_curve(charts, records, one.name, curve(one.title, one.unit, values, one.colour, measured), one.from_zero);
    charts.back().note = one.note;
  }
}

}  // namespace sf::report
