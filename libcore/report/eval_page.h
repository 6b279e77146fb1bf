// SPDX-License-Identifier: Apache-2.0
// Verdicts of checkpoints as one self-contained page. Every recorded point is drawn; a re-evaluation stands beside the
// original, never in its place; nothing is filled in.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "report/report.h"

namespace sf::report {

inline constexpr size_t kMostGridRows = 1000;  // more questions get no picture

struct EvalPoint {
  std::string label;
  std::optional<double> step;          // absent: not on the curve
  bool again = false;                  // a re-evaluation
  double rate = 0, low = 0, high = 0;  // shares
  std::vector<double> questions;       // share of correct answers, in the page's order; empty: not known
  std::vector<double> outcomes;        // shares in the order of EvalPage::outcomes; empty: not known
  std::vector<std::string> cells;      // of the table, in the order of EvalPage::columns
};

struct EvalPage {
  std::string title, subtitle;
  std::vector<std::pair<std::string, std::string>> tiles;  // value, what it is
  std::vector<std::string> columns;                        // of the table of points; the first is the label's
  std::vector<EvalPoint> points;                           // by step; those without a step last
  std::vector<std::string> questions;                      // ids
  std::vector<std::string> outcomes;                       // words
  std::vector<double> right_tokens, other_tokens;          // lengths of answers, correct or not
  std::string tokens_of;                                   // whose
  std::vector<std::string> rules;                          // of the agreement matrix
  std::vector<std::vector<double>> agreement;              // share of answers both judge alike
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<std::string> notes;
};

std::vector<Chart> charts_of(const EvalPage& page);
std::string page_of(const EvalPage& page);

}  // namespace sf::report
