// SPDX-License-Identifier: Apache-2.0
// aime-v1: an answer is an integer of 0 to 999. The last box, else the last marker, states it; equal integers are
// equal.
//   thinking      only what follows the last </think>; a thinking part without end is no answer
//   several boxes the last counts, the inner one if nested; one that has no end is passed over
//   no statement  is no answer, whatever numbers stand in the text
//   form          0042, 42.0, 84/2, \frac{84}{2}, n = 42, 42^\circ, "42 degrees", full-width digits and wrappers are
//                 42; "4 2", "42 or 43" and 42.5 are no integer
#pragma once
#include <optional>

#include "score/rule.h"

namespace sf::score {

Rule aime_rule(const RuleOptions& options);

// The integer that a candidate or a gold states. `out_of_range`: an integer, but outside 0..999.
struct AimeValue {
  std::optional<int64_t> value;
  bool out_of_range = false;
  std::string normal;  // the candidate without its wrappers
};
AimeValue aime_value(std::string_view candidate);

}  // namespace sf::score
