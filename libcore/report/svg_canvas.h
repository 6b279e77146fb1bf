// SPDX-License-Identifier: Apache-2.0
// What all charts share: the frame with title, axes, grid and legend, and the map from values to the page.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace sf::report {

struct Scale {
  double low = 0, high = 1;  // values
  double from = 0, to = 1;   // page
  double at(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

class Canvas {
 public:
  static constexpr double kWidth = 640, kHeight = 340;
  static constexpr double kLeft = 58, kRight = 630, kBottom = 288;
  // `legend` names with their palette indices; the plot starts below title and legend.
  Canvas(const std::string& title, const std::vector<std::pair<std::string, int>>& legend);

  static constexpr double kMargin = 2;  // where title and legend start
  double top() const { return top_; }
  void y_axis(const Scale& y, const std::vector<double>& ticks, const std::string& label);
  void x_axis(const Scale& x, const std::vector<double>& ticks, const std::string& label);
  void text(double x, double y, std::string_view css_class, std::string_view anchor, std::string_view words);
  void add(std::string_view element) { body_ += element; }
  std::string finish() const;

 private:
  std::string title_, body_;
  double top_ = 52;
};

std::string colour_class(int index);  // "c0".."c7", or "r0".."r8" of the ramp (100 + index)
std::string tick_text(double value, double step);
std::string page_number(double value);  // at most two decimals, no trailing zeros

}  // namespace sf::report
