// SPDX-License-Identifier: Apache-2.0
// exact, regex, gsm8k: comparisons of strings and plain numbers.
#pragma once
#include "score/rule.h"

namespace sf::score {

// The reason of an answer on which the engine of regular expressions gave up; it counts as no answer.
constexpr std::string_view kGaveUp = "gave_up";

Rule exact_rule();
Rule regex_rule(const RuleOptions& options);
Rule gsm8k_rule();

}  // namespace sf::score
