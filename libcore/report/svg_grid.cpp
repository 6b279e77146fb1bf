// SPDX-License-Identifier: Apache-2.0
#include "report/svg_grid.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "report/svg.h"
#include "report/svg_canvas.h"

namespace sf::report {
namespace {

constexpr double kTop = 78, kLetter = 6.6, kMostLabel = 190, kTallest = 34, kWidest = 110;

std::string shortened(const std::string& name, size_t most) {
  if (name.size() <= most) return name;
  size_t end = most - 1;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80) --end;
  return name.substr(0, end) + "…";
}

}  // namespace

std::string grid_chart(const GridChart& chart) {
  SF_ASSERT(chart.values.size() == chart.rows.size());
  size_t longest = 0;
  for (const std::string& row : chart.rows) longest = std::max(longest, row.size());
  double left = std::min(kMostLabel, 12 + kLetter * static_cast<double>(longest));
  double count = static_cast<double>(std::max<size_t>(1, chart.columns.size()));
  double width = std::min(kWidest, (Canvas::kRight - left) / count);
  double height = chart.numbers
                      ? kTallest
                      : std::clamp(900.0 / static_cast<double>(std::max<size_t>(1, chart.rows.size())), 5.0, 18.0);
  std::string body = fmt::format("<text class=\"t\" x=\"2\" y=\"20\">{}</text>\n", escaped(chart.title));
  size_t letters = static_cast<size_t>(std::max(3.0, width / kLetter * (width < 46 ? 2.2 : 1.0)));
  for (size_t c = 0; c < chart.columns.size(); ++c) {
    double x = left + (static_cast<double>(c) + 0.5) * width;
    std::string turn =
        width < 46 ? fmt::format(" transform=\"rotate(-32 {} {})\"", page_number(x), page_number(kTop - 10)) : "";
    body += fmt::format("<text class=\"a\" x=\"{}\" y=\"{}\" text-anchor=\"{}\"{}>{}</text>\n", page_number(x),
                        page_number(kTop - 10), width < 46 ? "start" : "middle", turn,
                        escaped(shortened(chart.columns[c], letters)));
  }
  for (size_t r = 0; r < chart.rows.size(); ++r) {
    SF_ASSERT(chart.values[r].size() == chart.columns.size());
    double y = kTop + static_cast<double>(r) * height;
    if (height >= 11)
      body += fmt::format("<text class=\"a\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", page_number(left - 8),
                          page_number(y + height / 2 + 4),
                          escaped(shortened(chart.rows[r], static_cast<size_t>(kMostLabel / kLetter))));
    for (size_t c = 0; c < chart.columns.size(); ++c) {
      double value = chart.values[r][c], x = left + static_cast<double>(c) * width;
      if (!std::isfinite(value)) continue;
      body += fmt::format(
          "<rect class=\"f c0\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"2\" opacity=\"{:.3f}\"><title>{}, "
          "{}: {:.1f} %</title></rect>\n",
          page_number(x + 1), page_number(y + 0.5), page_number(width - 2), page_number(height - 1),
          0.06 + 0.94 * std::clamp(value, 0.0, 1.0), escaped(chart.rows[r]), escaped(chart.columns[c]), 100 * value);
      if (chart.numbers)
        body += fmt::format("<text class=\"v\" x=\"{}\" y=\"{}\" text-anchor=\"middle\"{}>{:.1f}</text>\n",
                            page_number(x + width / 2), page_number(y + height / 2 + 4),
                            value > 0.6 ? " style=\"fill:var(--card)\"" : "", 100 * value);
    }
  }
  double bottom = kTop + height * static_cast<double>(chart.rows.size()) + 12;
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" "
      "aria-label=\"{}\">\n{}</svg>\n",
      Canvas::kWidth, page_number(bottom), escaped(chart.title), body);
}

}  // namespace sf::report
