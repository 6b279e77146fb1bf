// SPDX-License-Identifier: Apache-2.0
// String forms of verl's prime_math, and the Python readings they lean on.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace sf::score {

// LaTeX as plain text: \frac{a}{b} is a/b, \sqrt{a} is sqrt(a), symbols by their characters, unknown commands gone.
std::string plain_from_latex(std::string_view latex);

// prime_math's second normal form (its _normalize).
std::string prime_normal(std::string_view expression);

// Python's float(): white space around, signs, underscores between digits, exponents, inf and nan.
std::optional<double> python_float(std::string_view text);

// Commas of "1,234" as prime_math takes them out, one round after the other.
std::string without_thousands(std::string text);

// The value of a Python expression of numbers, + - * / ** and parentheses; nullopt for anything else.
std::optional<double> python_arithmetic(std::string_view text);

}  // namespace sf::score
