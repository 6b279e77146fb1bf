// SPDX-License-Identifier: Apache-2.0
#include "report/svg_canvas.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "report/svg.h"

namespace sf::report {
namespace {

constexpr double kLetter = 6.3;  // mean width of a legend's letter at 12 px

}  // namespace

std::string page_number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string colour_class(int index) {
  if (index >= 100) return fmt::format("r{}", std::min(index - 100, 8));
  return fmt::format("c{}", index % 8);
}

std::string tick_text(double value, double step) {
  if (std::abs(value) < step * 1e-6) value = 0;
  double size = std::abs(value);
  if (step >= 1000 && size >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (step >= 500 && size >= 1e4) return fmt::format("{:g}k", value / 1e3);
  if (step >= 1) return fmt::format("{:.0f}", value);
  if (step < 1e-4) return fmt::format("{:.0e}", value);
  return fmt::format("{:.{}f}", value, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
}

Canvas::Canvas(const std::string& title, const std::vector<std::pair<std::string, int>>& legend) : title_(title) {
  text(kMargin, 20, "t", "start", title);
  double x = kMargin, y = 42;
  for (const auto& [name, colour] : legend) {
    double width = 22 + kLetter * static_cast<double>(name.size()) + 14;
    if (x + width > kRight && x > kLeft) {
      x = kMargin;
      y += 18;
    }
    add(fmt::format("<rect class=\"f {}\" x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" rx=\"3\"/>\n",
                    colour_class(colour), page_number(x), page_number(y - 10)));
    text(x + 18, y, "l", "start", name);
    x += width;
  }
  top_ = legend.empty() ? 42 : y + 18;
}

void Canvas::text(double x, double y, std::string_view css_class, std::string_view anchor, std::string_view words) {
  add(fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", css_class, page_number(x),
                  page_number(y), anchor, escaped(words)));
}

void Canvas::y_axis(const Scale& y, const std::vector<double>& ticks, const std::string& label) {
  double step = ticks.size() > 1 ? ticks[1] - ticks[0] : 1;
  for (double tick : ticks) {
    double at = y.at(tick);
    add(fmt::format("<path class=\"g\" d=\"M{} {}H{}\"/>\n", page_number(kLeft), page_number(at), page_number(kRight)));
    text(kLeft - 8, at + 4, "a", "end", tick_text(tick, step));
  }
  double middle = (y.from + y.to) / 2;
  add(fmt::format("<text class=\"a\" transform=\"translate(12 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                  page_number(middle), escaped(label)));
}

void Canvas::x_axis(const Scale& x, const std::vector<double>& ticks, const std::string& label) {
  double step = ticks.size() > 1 ? ticks[1] - ticks[0] : 1;
  add(fmt::format("<path class=\"x\" d=\"M{} {}H{}\"/>\n", page_number(kLeft), page_number(kBottom),
                  page_number(kRight)));
  for (double tick : ticks) text(x.at(tick), kBottom + 20, "a", "middle", tick_text(tick, step));
  text((kLeft + kRight) / 2, kBottom + 42, "a", "middle", label);
}

std::string Canvas::finish() const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" "
      "aria-label=\"{}\">\n"
      "{}</svg>\n",
      kWidth, kHeight, escaped(title_), body_);
}

}  // namespace sf::report
