// SPDX-License-Identifier: Apache-2.0
#include "report/svg.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/utf8.h"
#include "report/svg_canvas.h"

namespace sf::report {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void take(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

// A range never of width 0, so that a constant line lies in the middle.
Range widened(Range range) {
  if (range.empty()) return {0, 1};
  if (range.high - range.low > 0) return range;
  double pad = range.low == 0 ? 1 : std::abs(range.low) * 0.1;
  return {range.low - pad, range.high + pad};
}

std::string line_path(const Series& series, const Scale& x, const Scale& y) {
  std::string path;
  bool pen_down = false;
  for (size_t i = 0; i < series.x.size(); ++i) {
    if (!std::isfinite(series.x[i]) || !std::isfinite(series.y[i])) {
      pen_down = false;
      continue;
    }
    path +=
        fmt::format("{}{} {}", pen_down ? "L" : "M", page_number(x.at(series.x[i])), page_number(y.at(series.y[i])));
    pen_down = true;
  }
  return path;
}

std::string band_path(const Series& series, const Scale& x, const Scale& y) {
  std::string there, back;
  for (size_t i = 0; i < series.x.size(); ++i) {
    if (!std::isfinite(series.low[i]) || !std::isfinite(series.high[i])) continue;
    there += fmt::format("{}{} {}", there.empty() ? "M" : "L", page_number(x.at(series.x[i])),
                         page_number(y.at(series.high[i])));
    back = fmt::format("L{} {}", page_number(x.at(series.x[i])), page_number(y.at(series.low[i]))) + back;
  }
  return there.empty() ? "" : there + back + "Z";
}

void draw(Canvas& canvas, const Series& series, const Scale& x, const Scale& y) {
  std::string colour = colour_class(series.colour);
  if (!series.low.empty())
    if (std::string path = band_path(series, x, y); !path.empty())
      canvas.add(fmt::format("<path class=\"b {}\" d=\"{}\"/>\n", colour, path));
  std::string path = line_path(series, x, y);
  if (path.empty()) return;
  if (series.line)
    canvas.add(fmt::format("<path class=\"{} {}\" d=\"{}\"/>\n", series.faint ? "s h" : "s", colour, path));
  size_t points =
      static_cast<size_t>(std::count_if(series.y.begin(), series.y.end(), [](double v) { return std::isfinite(v); }));
  if (points > 1 && !series.dots) return;
  for (size_t i = 0; i < series.x.size(); ++i)  // one point makes no line
    if (std::isfinite(series.y[i]))
      canvas.add(fmt::format("<circle class=\"f {}\" cx=\"{}\" cy=\"{}\" r=\"3.5\"/>\n", colour,
                             page_number(x.at(series.x[i])), page_number(y.at(series.y[i]))));
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : printable(text, true)) {  // control characters would break the picture's XML
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::vector<double> ticks(double low, double high, int wanted) {
  double rough = (high - low) / std::max(1, wanted);
  double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (double nice : {1.0, 2.0, 5.0})
    if (nice * power >= rough * 0.999) {
      step = nice * power;
      break;
    }
  std::vector<double> result;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && result.size() < 100; ++i)
    result.push_back(i * step);
  return result;
}

std::vector<double> smoothed(const std::vector<double>& values, double window) {
  double keep = window <= 1 ? 0 : 1 - 2 / (window + 1);
  double sum = 0, weight = 0;
  std::vector<double> result;
  for (double value : values) {
    if (std::isfinite(value)) {
      sum = keep * sum + (1 - keep) * value;
      weight = keep * weight + (1 - keep);
    }
    result.push_back(std::isfinite(value) ? sum / weight : kNone);
  }
  return result;
}

Series thinned(const Series& series, size_t most) {
  size_t count = series.x.size();
  if (count <= most || most == 0) return series;
  Series result{.name = series.name, .faint = series.faint, .colour = series.colour};
  for (size_t bin = 0; bin < most; ++bin) {
    size_t begin = bin * count / most, end = (bin + 1) * count / most;
    double x = 0, y = 0, seen = 0;
    Range range;
    for (size_t i = begin; i < end; ++i) {
      x += series.x[i];
      if (!std::isfinite(series.y[i])) continue;
      range.take(series.y[i]);
      y += series.y[i];
      ++seen;
    }
    result.x.push_back(x / static_cast<double>(end - begin));
    result.y.push_back(seen > 0 ? y / seen : kNone);
    result.low.push_back(seen > 0 ? range.low : kNone);
    result.high.push_back(seen > 0 ? range.high : kNone);
  }
  return result;
}

std::string line_chart(const LineChart& chart) {
  std::vector<std::pair<std::string, int>> legend;
  Range xs, ys;
  for (const Series& series : chart.series) {
    SF_ASSERT(series.x.size() == series.y.size() && series.low.size() == series.high.size());
    if (!series.name.empty()) legend.emplace_back(series.name, series.colour);
    for (double value : series.x) xs.take(value);
    for (const auto* values : {&series.y, &series.low, &series.high})
      for (double value : *values) ys.take(value);
  }
  if (chart.from_zero) ys.take(0);
  if (chart.y_most) ys.take(*chart.y_most);
  xs = widened(xs);
  ys = widened(ys);
  double pad = (ys.high - ys.low) * 0.05;
  if (!chart.from_zero || ys.low < 0) ys.low -= pad;
  if (!chart.y_most) ys.high += pad;
  Canvas canvas(chart.title, legend);
  Scale x{.low = xs.low, .high = xs.high, .from = Canvas::kLeft, .to = Canvas::kRight};
  Scale y{.low = ys.low, .high = ys.high, .from = Canvas::kBottom, .to = canvas.top()};
  canvas.y_axis(y, ticks(ys.low, ys.high, 5), chart.y_label);
  canvas.x_axis(x, ticks(xs.low, xs.high, 8), chart.x_label);
  for (double mark : chart.marks)
    canvas.add(fmt::format("<path class=\"m\" d=\"M{} {}V{}\"/>\n", page_number(x.at(mark)), page_number(canvas.top()),
                           page_number(Canvas::kBottom)));
  for (const Series& series : chart.series) draw(canvas, series, x, y);
  return canvas.finish();
}

}  // namespace sf::report
