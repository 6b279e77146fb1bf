// SPDX-License-Identifier: Apache-2.0
// Values of expressions, three ways: as exact fractions; as residues of two 61-bit primes, which tell rational
// functions of any size and any number of symbols apart (equal residues of unequal ones: less than 2^-100); and as
// complex doubles at fixed points of the symbols, for roots and functions.
#pragma once
#include <array>
#include <complex>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "score/math_node.h"

namespace sf::score {

struct Fraction {
  __int128 above = 0, below = 1;  // lowest terms, below > 0
  std::string text() const;       // "3" or "-3/4"
};

// Each is nullopt where the expression has no such value (symbols, overflow, a root that is none, division by zero).
std::optional<Fraction> fraction_of(const MathNode& node);
using Residues = std::array<uint64_t, 2>;
std::optional<Residues> residues_of(const MathNode& node);
// `point` chooses the symbols' values: positive ones at 0..3; of both signs at 4..15, where roots and logarithms of
// what is negative have no value.
std::optional<std::complex<double>> number_of(const MathNode& node, int point);

// Names of the symbols except pi, e and i.
void collect_symbols(const MathNode& node, std::set<std::string>& into);
// Whether a decimal point occurs.
bool has_decimal(const MathNode& node);

}  // namespace sf::score
