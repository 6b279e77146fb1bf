// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "report/svg.h"
#include "report/svg_canvas.h"

namespace sf::report {
namespace {

constexpr double kGroupShare = 0.62;  // of a group's place that its bars fill
constexpr double kWidestBar = 84;

int colour_at(const std::vector<int>& colours, size_t index) {
  return index < colours.size() ? colours[index] : static_cast<int>(index);
}

std::vector<std::pair<std::string, int>> legend_of(const std::vector<std::string>& names,
                                                   const std::vector<int>& colours) {
  std::vector<std::pair<std::string, int>> legend;
  for (size_t i = 0; i < names.size(); ++i) legend.emplace_back(names[i], colour_at(colours, i));
  return legend;
}

// A column with round shoulders that stands on `base`.
std::string column(double x, double width, double top, double base, int colour) {
  double r = std::min({4.0, width / 2, base - top});
  return fmt::format("<path class=\"f {}\" d=\"M{} {}V{}q0 -{} {} -{}h{}q{} 0 {} {}V{}Z\"/>\n", colour_class(colour),
                     page_number(x), page_number(base), page_number(top + r), page_number(r), page_number(r),
                     page_number(r), page_number(width - 2 * r), page_number(r), page_number(r), page_number(r),
                     page_number(base));
}

void draw_group(Canvas& canvas, const BarChart& chart, size_t group, const Scale& y) {
  double place = (Canvas::kRight - Canvas::kLeft) / static_cast<double>(chart.groups.size());
  double middle = Canvas::kLeft + place * (static_cast<double>(group) + 0.5);
  double count = static_cast<double>(chart.names.size());
  double width = std::min(kWidestBar, place * kGroupShare / count);
  for (size_t i = 0; i < chart.names.size(); ++i) {
    double x = middle + (static_cast<double>(i) - count / 2) * width;
    double value = chart.values[i][group];
    if (!std::isfinite(value)) {
      canvas.text(x + width / 2, Canvas::kBottom - 8, "a", "middle", "not run");
      continue;
    }
    double top = y.at(std::max(0.0, value));
    canvas.add(
        column(x + 2, width - 4, top, Canvas::kBottom, colour_at(chart.colours, chart.names.size() > 1 ? i : group)));
    canvas.text(x + width / 2, top - 6, "v", "middle", fmt::format("{:.{}f}", value, chart.decimals));
  }
  canvas.text(middle, Canvas::kBottom + 20, "l", "middle", chart.groups[group]);
  if (group < chart.notes.size()) canvas.text(middle, Canvas::kBottom + 38, "a", "middle", chart.notes[group]);
}

}  // namespace

std::string bar_chart(const BarChart& chart) {
  SF_ASSERT(chart.values.size() == chart.names.size());
  double most = 0;
  for (const auto& row : chart.values) {
    SF_ASSERT(row.size() == chart.groups.size());
    for (double value : row)
      if (std::isfinite(value)) most = std::max(most, value);
  }
  Canvas canvas(chart.title, chart.names.size() > 1 ? legend_of(chart.names, chart.colours)
                                                    : std::vector<std::pair<std::string, int>>{});
  Scale y{.low = 0, .high = most > 0 ? most * 1.12 : 1, .from = Canvas::kBottom, .to = canvas.top()};
  canvas.y_axis(y, ticks(y.low, y.high, 5), chart.y_label);
  for (size_t group = 0; group < chart.groups.size(); ++group) draw_group(canvas, chart, group, y);
  canvas.add(fmt::format("<path class=\"x\" d=\"M{} {}H{}\"/>\n", page_number(Canvas::kLeft),
                         page_number(Canvas::kBottom), page_number(Canvas::kRight)));
  return canvas.finish();
}

std::string stack_chart(const StackChart& chart) {
  SF_ASSERT(chart.values.size() == chart.names.size());
  size_t count = chart.x.size();
  double most = 0;
  for (size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (const auto& row : chart.values) sum += std::isfinite(row[i]) ? row[i] : 0;
    most = std::max(most, sum);
  }
  Canvas canvas(chart.title, legend_of(chart.names, {}));
  double half = count > 1 ? (chart.x.back() - chart.x.front()) / static_cast<double>(count - 1) / 2 : 0.5;
  Scale x{.low = count ? chart.x.front() - half : 0,
          .high = count ? chart.x.back() + half : 1,
          .from = Canvas::kLeft,
          .to = Canvas::kRight};
  Scale y{.low = 0, .high = most > 0 ? most * 1.05 : 1, .from = Canvas::kBottom, .to = canvas.top()};
  canvas.y_axis(y, ticks(y.low, y.high, 5), chart.y_label);
  canvas.x_axis(x, ticks(x.low, x.high, 8), chart.x_label);
  double width = count ? (Canvas::kRight - Canvas::kLeft) / static_cast<double>(count) : 0;
  double gap = width > 12 ? 2 : 0;
  for (size_t i = 0; i < count; ++i) {
    double base = 0;
    for (size_t part = 0; part < chart.names.size(); ++part) {
      double value = chart.values[part][i];
      if (!std::isfinite(value) || value <= 0) continue;
      double top = y.at(base + value);
      canvas.add(fmt::format("<rect class=\"f {}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n",
                             colour_class(static_cast<int>(part)),
                             page_number(Canvas::kLeft + static_cast<double>(i) * width + gap / 2), page_number(top),
                             page_number(width - gap), page_number(y.at(base) - top)));
      base += value;
    }
  }
  return canvas.finish();
}

}  // namespace sf::report
