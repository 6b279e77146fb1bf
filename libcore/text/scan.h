// SPDX-License-Identifier: Apache-2.0
// Hand-written matchers of the published split patterns, equal to the regular expressions piece by piece
// (models_text_scoring 4.4). Every position is covered, so pieces follow each other without gaps.
#pragma once
#include <string_view>
#include <vector>

namespace sf::text {

enum class Scan { kNone, kGpt2, kQwen2, kLlama3, kQwen35 };

Scan scan_of_pattern(std::string_view pattern);  // kNone: not one of the published ones
// Requires: valid UTF-8, scan != kNone.
void scan_pieces(Scan scan, std::string_view text, std::vector<std::string_view>& out);

}  // namespace sf::text
