// SPDX-License-Identifier: Apache-2.0
// An answer in LaTeX or plain notation as a tree. Parsing is linear in the text and refuses what is too long or too
// deep; currency, degree signs and layout commands leave no trace, and a unit only a name beside its number.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sf::score {

struct MathNode {
  enum Kind {
    kNumber,     // text: digits, perhaps with a point; repeat: the repeating digits behind it
    kSymbol,     // text: name; pi, e and i are what they are
    kInfinity,   //
    kText,       // text: words
    kAdd,        // items
    kNegate,     // 1 item
    kMultiply,   // items
    kDivide,     // 2 items
    kPower,      // base, exponent
    kRoot,       // index, radicand
    kFunction,   // text: sin, log, abs, factorial, binom, ...; items. "base": a number's digits and their base;
                 // "derivative": of what is no name; "f()", "g'()": a named function, applied
    kPercent,    // 1 item
    kPlusMinus,  // 1 or 2 items
    kList,       // items, bare, separated by commas or "or"
    kTuple,      // items; text: its two brackets, "()", "[)", ...
    kSet,        // items
    kMatrix,     // rows, each a kList
    kRelation,   // items with a sign between each two; text: the signs, one of = < > l g ! i each (l, g: or equal; i:
                 // in)
    kUnion,      // items; text: one of U (union), n (intersection), - (difference)
  };
  Kind kind = kNumber;
  std::string text;
  std::vector<MathNode> items;
  std::string repeat;
  std::string unit = {};  // "cm", "m^2", "km/h": what the number counts, by one name each; empty: none, or none known
};

constexpr size_t kMostMathBytes = 8192;
constexpr int kMostMathDepth = 300;  // levels of the grammar: about 50 brackets inside each other
constexpr size_t kMostMathTokens = 2000;

// nullopt if the text is no notation known here.
std::optional<MathNode> parse_math(std::string_view text);

// The text without spaces, layout commands and outer dollars, for comparison where nothing can be parsed.
std::string compact_math(std::string_view text);

}  // namespace sf::score
