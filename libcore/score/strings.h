// SPDX-License-Identifier: Apache-2.0
// Small operations on UTF-8 text. All are linear and total: any byte sequence is accepted; a byte that belongs to no
// character counts as one.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sf::score {

bool is_digit(char c);
bool is_letter(char c);  // ASCII
char lower(char c);      // ASCII
std::string lowered(std::string_view text);
bool all_digits(std::string_view text);  // at least one, ASCII

// Bytes of the character that begins at `at` (1 to 4).
size_t character_size(std::string_view text, size_t at);
size_t count_characters(std::string_view text);
std::string_view last_characters(std::string_view text, size_t count);

// Bytes of the white space character (Unicode's, as Python's str.isspace) that begins at `at`; 0 if there is none.
size_t space_size(std::string_view text, size_t at);
std::string_view trimmed(std::string_view text);  // Unicode white space off both ends
std::string_view trimmed_ascii(std::string_view text);

void replace_all(std::string& text, std::string_view from, std::string_view to);
void remove_all(std::string& text, std::string_view what);
std::vector<std::string> split(std::string_view text, std::string_view by);
// Last place of an ASCII word whatever its case, or npos. `word` in lower case.
size_t rfind_lowered(std::string_view text, std::string_view word);
size_t find_lowered(std::string_view text, std::string_view word, size_t from = 0);

bool valid_utf8(std::string_view text);
// Each byte that belongs to no character becomes U+FFFD.
std::string repaired_utf8(std::string_view text);

}  // namespace sf::score
