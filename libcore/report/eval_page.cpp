// SPDX-License-Identifier: Apache-2.0
#include "report/eval_page.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "report/page.h"
#include "report/svg.h"
#include "report/svg_grid.h"

namespace sf::report {
namespace {

constexpr size_t kMostBins = 12;

std::optional<Chart> accuracy(const EvalPage& page) {
  Series first{.name = "pass@1, 95 % band", .x = {}, .y = {}, .low = {}, .high = {}, .dots = true, .colour = 0};
  Series again{
      .name = "evaluated again", .x = {}, .y = {}, .low = {}, .high = {}, .dots = true, .line = false, .colour = 1};
  for (const EvalPoint& point : page.points) {
    if (!point.step) continue;
    Series& series = point.again ? again : first;
    series.x.push_back(*point.step);
    series.y.push_back(100 * point.rate);
    if (point.again) continue;
    series.low.push_back(100 * point.low);
    series.high.push_back(100 * point.high);
  }
  if (first.x.empty()) return std::nullopt;
  LineChart chart{.title = "Accuracy against step", .x_label = "step", .y_label = "pass@1, %"};
  chart.series.push_back(std::move(first));
  if (!again.x.empty()) chart.series.push_back(std::move(again));
  chart.from_zero = true;
  chart.y_most = 100;
  return Chart{"accuracy", line_chart(chart),
               "Every recorded point; the band is each point's own 95 % interval, so compare checkpoints by the paired "
               "test, not by bands."};
}

std::optional<Chart> bars(const EvalPage& page) {
  BarChart chart{.title = "Accuracy",
                 .y_label = "pass@1, %",
                 .groups = {},
                 .names = {"pass@1"},
                 .values = {{}},
                 .notes = {},
                 .colours = {},
                 .decimals = 1};
  for (const EvalPoint& point : page.points) {
    if (point.step) continue;
    chart.groups.push_back(point.label);
    chart.values[0].push_back(100 * point.rate);
    chart.notes.push_back(fmt::format("{:.1f} to {:.1f}", 100 * point.low, 100 * point.high));
  }
  if (chart.groups.empty() || chart.groups.size() > 8) return std::nullopt;
  return Chart{"pass1", bar_chart(chart), "Below each name its 95 % interval."};
}

std::optional<Chart> question_grid(const EvalPage& page) {
  GridChart chart{.title = "Questions over checkpoints", .rows = page.questions, .columns = {}, .values = {}};
  chart.values.resize(page.questions.size());
  for (const EvalPoint& point : page.points) {
    if (point.questions.size() != page.questions.size()) continue;
    chart.columns.push_back(point.label);
    for (size_t i = 0; i < point.questions.size(); ++i) chart.values[i].push_back(point.questions[i]);
  }
  if (chart.columns.empty() || chart.rows.empty() || chart.rows.size() > kMostGridRows) return std::nullopt;
  return Chart{"questions", grid_chart(chart), "The darker, the more of a question's answers are correct."};
}

// Outcomes that occur nowhere have no column.
std::optional<Chart> outcome_grid(const EvalPage& page) {
  GridChart chart{.title = "Outcomes, % of answers", .rows = {}, .columns = {}, .values = {}, .numbers = true};
  std::vector<size_t> shown;
  for (size_t i = 0; i < page.outcomes.size(); ++i) {
    auto occurs = [&](const EvalPoint& point) { return point.outcomes.size() > i && point.outcomes[i] > 0; };
    if (std::none_of(page.points.begin(), page.points.end(), occurs)) continue;
    shown.push_back(i);
    chart.columns.push_back(page.outcomes[i]);
  }
  for (const EvalPoint& point : page.points) {
    if (point.outcomes.size() != page.outcomes.size()) continue;
    chart.rows.push_back(point.label);
    chart.values.emplace_back();
    for (size_t i : shown) chart.values.back().push_back(point.outcomes[i]);
  }
  if (chart.rows.empty() || chart.columns.empty() || chart.rows.size() > kMostGridRows) return std::nullopt;
  return Chart{"outcomes", grid_chart(chart), "Why answers are not correct; what occurs nowhere has no column."};
}

std::string length_text(double tokens) {
  return tokens >= 10000 ? fmt::format("{:.0f}k", tokens / 1000) : fmt::format("{:.0f}", tokens);
}

std::optional<Chart> lengths(const EvalPage& page) {
  double most = 0;
  for (const auto* tokens : {&page.right_tokens, &page.other_tokens})
    for (double value : *tokens) most = std::max(most, value);
  if (most <= 0) return std::nullopt;
  std::vector<double> nice = ticks(0, most, static_cast<int>(kMostBins) - 2);
  double width = nice.size() > 1 ? nice[1] - nice[0] : most;
  auto bins = static_cast<size_t>(most / width) + 1;
  BarChart chart{.title = "Length of answers, " + page.tokens_of,
                 .y_label = "answers",
                 .groups = {},
                 .names = {"correct", "not correct"},
                 .values = {std::vector<double>(bins, 0.0), std::vector<double>(bins, 0.0)},
                 .notes = {},
                 .colours = {2, 3},
                 .decimals = 0};
  for (size_t i = 0; i < bins; ++i) chart.groups.push_back(length_text(width * static_cast<double>(i)) + "+");
  for (double value : page.right_tokens) ++chart.values[0][static_cast<size_t>(value / width)];
  for (double value : page.other_tokens) ++chart.values[1][static_cast<size_t>(value / width)];
  return Chart{"lengths", bar_chart(chart), "Tokens of an answer; each bin is named by its lower end."};
}

std::optional<Chart> agreement(const EvalPage& page) {
  if (page.rules.size() < 2) return std::nullopt;
  GridChart chart{.title = "Agreement between rules, %",
                  .rows = page.rules,
                  .columns = page.rules,
                  .values = page.agreement,
                  .numbers = true};
  return Chart{"agreement", grid_chart(chart),
               "Share of the same answers that both rules judge alike, correct or not."};
}

std::string table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows) {
  std::string text = "<table><thead><tr>";
  for (const std::string& cell : head) text += fmt::format("<th>{}</th>", escaped(cell));
  text += "</tr></thead>\n";
  for (const auto& row : rows) {
    text += "<tr>";
    for (const std::string& cell : row) text += fmt::format("<td>{}</td>", escaped(cell));
    text += "</tr>\n";
  }
  return text + "</table>";
}

std::string wide_card(std::string_view title, std::string_view inside) {
  return fmt::format("<section class=\"card wide\"><h2>{}</h2>{}</section>\n", escaped(title), inside);
}

}  // namespace

std::vector<Chart> charts_of(const EvalPage& page) {
  std::vector<Chart> charts;
  for (auto make : {accuracy, bars, outcome_grid, lengths, agreement, question_grid})
    if (auto chart = make(page)) charts.push_back(std::move(*chart));
  return charts;
}

std::string page_of(const EvalPage& page) {
  std::string body = fmt::format("<h1>{}</h1>\n<p class=\"sub\">{}</p>\n<div class=\"tiles\">\n", escaped(page.title),
                                 escaped(page.subtitle));
  for (const auto& [value, what] : page.tiles) body += tile(value, what);
  body += "</div>\n<div class=\"cards\">\n";
  std::vector<std::vector<std::string>> rows;
  for (const EvalPoint& point : page.points) rows.push_back(point.cells);
  std::string notes;
  for (const std::string& note : page.notes) notes += fmt::format("<p>{}</p>", escaped(note));
  body += wide_card("Checkpoints", table(page.columns, rows) + notes);
  for (const Chart& chart : charts_of(page)) body += chart_card(chart);
  if (!page.facts.empty()) {
    rows.clear();
    for (const auto& [name, value] : page.facts) rows.push_back({name, value});
    body += wide_card("What was measured", table({"", ""}, rows));
  }
  return document(page.title, body + "</div>\n", "verdicts of sf-eval score");
}

}  // namespace sf::report
