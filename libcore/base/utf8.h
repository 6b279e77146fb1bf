// SPDX-License-Identifier: Apache-2.0
// Text of unknown origin, such as a path: bytes that need not be UTF-8 and may command a terminal.
#pragma once
#include <string>
#include <string_view>

namespace sf {

// Bytes of the UTF-8 character that begins at `at` (RFC 3629: shortest form, no surrogate); 0 if none does.
size_t utf8_length(std::string_view text, size_t at);
// For people: control characters (C0, DEL, C1) and bytes that are no UTF-8 as \n, \t, \r or \xNN. Newlines and tabs
// pass with `lines`.
std::string printable(std::string_view text, bool lines = false);

}  // namespace sf
