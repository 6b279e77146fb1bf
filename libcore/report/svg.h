// SPDX-License-Identifier: Apache-2.0
// Charts as SVG text: axes, lines, bands, bars, legends. Pure functions; colours are CSS variables, so that a chart is
// at home on a light page, on a dark one, and alone in a file.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sf::report {

struct Series {
  std::string name;               // empty: not in the legend
  std::vector<double> x, y;       // equal lengths; a y that is not finite breaks the line
  std::vector<double> low, high;  // a band around the line, or empty
  bool faint = false;             // raw values behind their smoothed line
  bool dots = false;              // a dot at each value
  bool line = true;               // and a line between them
  int colour = 0;                 // index of the palette; series of a ramp use 100 + index
};

struct LineChart {
  std::string title, x_label, y_label;
  std::vector<Series> series;
  bool from_zero = false;        // the y axis starts at 0
  std::optional<double> y_most;  // and ends here
  std::vector<double> marks;     // vertical lines, e.g. where the run was resumed
};

struct BarChart {
  std::string title, y_label;
  std::vector<std::string> groups;          // along the x axis
  std::vector<std::string> names;           // bars of a group
  std::vector<std::vector<double>> values;  // [name][group]; not finite: no bar, written as "not run"
  std::vector<std::string> notes;           // one a group, below its label; may be empty
  std::vector<int> colours;                 // one a name, or one a group if there is one name; empty: in order
  int decimals = 2;
};

// Shares that add up, over x: one column of stacked parts for each x.
struct StackChart {
  std::string title, x_label, y_label;
  std::vector<double> x;
  std::vector<std::string> names;
  std::vector<std::vector<double>> values;  // [name][x]
};

std::string line_chart(const LineChart& chart);
std::string bar_chart(const BarChart& chart);
std::string stack_chart(const StackChart& chart);

// CSS variables and classes the charts use; once in a page.
std::string_view chart_style();
// A chart as a file of its own.
std::string standalone(const std::string& svg);

// Exponential moving average of about `window` values, corrected for its start; gaps stay gaps.
std::vector<double> smoothed(const std::vector<double>& values, double window);
// At most `most` points: means of bins, with the bins' extremes as a band.
Series thinned(const Series& series, size_t most);
// Round tick values that cover [low, high], about `wanted` of them.
std::vector<double> ticks(double low, double high, int wanted);
std::string escaped(std::string_view text);  // for XML text and attributes

}  // namespace sf::report
