// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <vector>

namespace sf::report {

// A table of shares as shades, 0 pale to 1 full. The picture grows with its rows.
struct GridChart {
  std::string title;
  std::vector<std::string> rows, columns;
  std::vector<std::vector<double>> values;  // [row][column], 0..1; not finite: an empty cell
  bool numbers = false;                     // write each share into its cell, in percent
};

std::string grid_chart(const GridChart& chart);

}  // namespace sf::report
