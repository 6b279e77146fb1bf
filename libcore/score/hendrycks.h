// SPDX-License-Identifier: Apache-2.0
// The string form of the MATH data set's own grader, which several public graders share. Quirks are kept as they are:
// they are what published numbers were made with.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace sf::score {

// The last box as the grader cuts it. kSpace: "\boxed " occurs, the content runs to the next "$". kBroken: there is a
// box that its own unwrapping refuses (\fbox{...}, \boxed42 {...}).
struct OldBox {
  enum { kNone, kBraced, kSpace, kBroken } kind = kNone;
  std::string_view content;
};
OldBox old_last_box(std::string_view text);

// The normal form, or nullopt where the grader's transform raises (two "\text{ ", a \frac or \sqrt without argument).
// `strict_slash`: "x/y" without integers raises too (lm-evaluation-harness).
std::optional<std::string> old_normal(std::string_view text, bool strict_slash);

// Equal normal forms; equal strings where either transform raises.
bool old_equal(std::string_view a, std::string_view b, bool strict_slash);

}  // namespace sf::score
