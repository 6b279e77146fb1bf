// SPDX-License-Identifier: Apache-2.0
// exact, regex, gsm8k: comparisons of strings and plain numbers.
#pragma once
#include "score/rule.h"

namespace sf::score {

Rule exact_rule();
Rule regex_rule(const RuleOptions& options);
Rule gsm8k_rule();

}  // namespace sf::score
