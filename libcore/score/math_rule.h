// SPDX-License-Identifier: Apache-2.0
// Rule math. Where the answer is:
//   thinking     only what follows the last </think>; a thinking part without end is no answer
//   statements   boxes and answer lines ("answer is", "answer:", also with a full-width colon, "####"); the last
//   counts,
//                and a box inside an answer line that says something else before it does not overrule it
//   empty lines  an answer line with nothing behind it speaks of the next line; one that says only words is passed over
//   closing      with no statement, a text that ends in a value (after at most a point) states it
//   unclosed box a box that the length limit cut is no answer
// What it means is math_equal's business.
#pragma once
#include "score/rule.h"

namespace sf::score {

Rule math_rule(const RuleOptions& options);

}  // namespace sf::score
