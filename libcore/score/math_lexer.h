// SPDX-License-Identifier: Apache-2.0
// Tokens of an answer: numbers whole, commands by name, words sorted into functions, units and the rest.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace sf::score {

struct MathToken {
  enum Kind {
    kNumber,   // "1000", "3.14", ".5"; thousands separators gone
    kCommand,  // \frac, sin, pi: the name
    kLetter,   // one letter
    kWord,     // words, of \text{...} or bare
    kUnit,     // a unit or a word that counts things
    kSign,     // one character: + - * / ^ _ ( ) [ ] { } < > = , ; ! | & % '
    kRow,      // the line end of a matrix
    kEnd,
  };
  Kind kind = kEnd;
  std::string text;
};

// Ends with one kEnd. Layout commands, spaces, degree signs and currency give no token.
std::vector<MathToken> lex_math(std::string_view text);
// One name for the unit that words say ("square inches" and "in ^2": "in^2"); empty where a word is no measure.
std::string unit_of_words(std::string_view words);
// Every table of the lexer, for a rule's digest.
std::string math_lexer_tables();

}  // namespace sf::score
