// SPDX-License-Identifier: Apache-2.0
// A recorded curve of rewards or accuracies, as training logs export it.
#pragma once
#include <string_view>
#include <vector>

#include "report/eval_page.h"

namespace sf::tool {

struct CurvePoint {
  int64_t step = 0;
  bool again = false;
  int64_t correct = 0, of = 0;  // the count the value stands for
  double share() const { return static_cast<double>(correct) / static_cast<double>(of); }
};

// CSV with a header that names step and one of reward (+1 and -1) and accuracy (0 to 1), perhaps again (0 or 1). Every
// value must stand for a whole number of `of` answers, to 0.005 of one: kData naming the line otherwise.
std::vector<CurvePoint> read_curve(std::string_view csv, std::string_view origin, int64_t of);

report::EvalPage curve_page(const std::vector<CurvePoint>& points, const std::string& title);
std::vector<std::string> curve_lines(const std::vector<CurvePoint>& points);
Json curve_json(const std::vector<CurvePoint>& points);

}  // namespace sf::tool
