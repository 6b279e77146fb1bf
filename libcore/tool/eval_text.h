// SPDX-License-Identifier: Apache-2.0
// Verdicts as people read them on a terminal or in a log.
#pragma once
#include <string>
#include <vector>

#include "app/command.h"
#include "score/scores.h"

namespace sf::tool {

std::string percent(double share);                        // "71.9"
std::string percent_range(const score::Interval& range);  // "57.0..83.1"
std::string thousands(int64_t count);                     // "12,345"

// The summary of one file of verdicts, one fact a line; every rate carries its counts.
std::vector<std::string> summary_lines(const score::Scores& scores, const score::Summary& summary,
                                       const score::Majorities& majorities);

// A text with its span between marks, cut to about `around` bytes on each side on character borders, as it was
// otherwise.
std::string marked(std::string_view text, const score::Span& span, size_t around);

// Lines of a text report: labels, ids and golds come from files and may hold anything, so each line is told as one,
// its control characters written out. All text that verbs print about verdicts passes here.
void say_lines(app::Invocation& invocation, const std::vector<std::string>& lines);

}  // namespace sf::tool
