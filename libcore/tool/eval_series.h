// SPDX-License-Identifier: Apache-2.0
// Verdicts of several checkpoints of one set under one rule, in the order of their steps, with what may be said of
// them.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "score/scores.h"

namespace sf::tool {

struct EvalEntry {
  std::string label;
  std::optional<int64_t> step;
  bool again = false;  // a re-evaluation: stands beside the original
  score::Scores scores;
  score::Summary summary;
  // Against the reference; absent for the reference itself.
  std::optional<score::Paired> paired;
  double adjusted_p = 1;  // Holm, over all comparisons shown
};

struct EvalSeries {
  std::vector<EvalEntry> entries;
  size_t reference = 0;
  bool outside = false;            // the first entry is compared with, but none of the series: its step may occur twice
  std::vector<std::string> notes;  // what the numbers do and do not show
};

// kProtocol if rules or questions differ; kData if the questions answered differ, or if two files claim to be the
// original of one step, or if one holds no verdict. `against`: label of the reference, else the first entry.
EvalSeries series_of(std::vector<score::Scores> files, const std::string& against, bool outside = false);

std::vector<std::string> series_columns(const EvalSeries& series);
std::vector<std::string> series_cells(const EvalSeries& series, const EvalEntry& entry);
// The table as text, the columns as wide as their cells, within `width` columns (0: no limit): those at the end that do
// not fit go.
std::vector<std::string> series_lines(const EvalSeries& series, size_t width);
Json series_json(const EvalSeries& series);

}  // namespace sf::tool
