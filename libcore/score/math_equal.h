// SPDX-License-Identifier: Apache-2.0
// When two answers mean the same.
//   values     exactly, by residues; where roots or functions stop that, as doubles at fixed points to 1e-9 relative
//   decimals   equal what they round to: a difference of at most 5e-7 is none if one side has a decimal point
//   percent    50% is 1/2, and also 50 where only one side has the sign
//   relations  "x = 5" is 5; "a = b = 5" is 5; two relations are equal if one is a multiple of the other
//   intervals  x > 5 is (5, oo); brackets count; (1,2) is the same tuple and interval, [1,2] another
//   sets       order does not count; a bare list "1, 2" and "1 or 2" are sets, a bracketed tuple is not; {5} is 5
//   plus-minus both values, as a set
//   matrices   entry by entry, whatever the brackets
//   text       letters without case and spaces: \text{B}, B and (B) are equal
#pragma once
#include <string>

#include "score/math_node.h"

namespace sf::score {

enum class MathVerdict { kEqual, kDifferent, kUndecided };

MathVerdict math_equal(const MathNode& gold, const MathNode& answer);

// The same for expressions alone, without the allowances for decimals, percent, sets and relations.
MathVerdict same_expression(const MathNode& a, const MathNode& b);

// A text that equal answers share, for voting: a fraction, or ten digits, or the parts in order.
std::string math_normal(const MathNode& node);

}  // namespace sf::score
