// SPDX-License-Identifier: Apache-2.0
// Strict UTF-8 and the few character properties that tokenizers and templates need (Unicode 15, utf8proc).
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace sf::text {

// Properties of a code point, as bits.
enum : uint8_t {
  kLetter = 1,      // L*
  kNumber = 2,      // N*
  kMark = 4,        // M*
  kSpace = 8,       // White_Space (no U+180E, U+200B, U+FEFF, U+001C..001F)
  kConnector = 16,  // Pc
  kMayCompose = 32  // NFC may change a text that holds it
};
// 0x110000 entries, built at the first call.
const uint8_t* unicode_classes();

// One step of a decoder. `length` >= 1 where input is left: of the code point, or of the maximal ill-formed subpart.
struct Decoded {
  char32_t value = 0xFFFD;
  uint8_t length = 0;
  bool valid = false;
  bool truncated = false;  // ill-formed only because the text ends here
};
Decoded decode_utf8(std::string_view text, size_t at);

// Requires: valid UTF-8 at `p`.
inline char32_t decode_valid(const char* p, unsigned& length) {
  const auto* b = reinterpret_cast<const unsigned char*>(p);
  if (b[0] < 0x80) return length = 1, b[0];
  if (b[0] < 0xE0) return length = 2, static_cast<char32_t>((b[0] & 31) << 6 | (b[1] & 63));
  if (b[0] < 0xF0) return length = 3, static_cast<char32_t>((b[0] & 15) << 12 | (b[1] & 63) << 6 | (b[2] & 63));
  length = 4;
  return static_cast<char32_t>((b[0] & 7) << 18 | (b[1] & 63) << 12 | (b[2] & 63) << 6 | (b[3] & 63));
}

void append_utf8(std::string& out, char32_t code_point);
size_t invalid_utf8_at(std::string_view text);       // npos: all valid
std::string replace_invalid(std::string_view text);  // one U+FFFD a maximal ill-formed subpart
size_t count_code_points(std::string_view valid);
std::u32string to_code_points(std::string_view valid);
std::string to_utf8(std::u32string_view code_points);

// NFC; returns the text itself where nothing can change.
bool may_need_nfc(std::string_view valid);
std::string nfc(std::string_view valid);

char32_t to_upper(char32_t code_point);  // simple mappings: one code point to one
char32_t to_lower(char32_t code_point);
// str.upper, str.lower and str.title of one character inside a text, with the mappings to several (\u00df: SS) and the
// final sigma.
void append_upper(std::u32string& out, char32_t code_point);
void append_title(std::u32string& out, char32_t code_point);
void append_lower(std::u32string& out, std::u32string_view text, size_t at);
bool python_space(char32_t code_point);  // str.isspace: White_Space and U+001C..001F

// The byte alphabet of byte-level BPE: byte -> code point (models_text_scoring 4.5) and back.
const std::array<char32_t, 256>& byte_alphabet();
// Bytes of a token as the vocabulary writes it. False: some character is outside the alphabet, `out` holds the UTF-8.
bool token_to_bytes(std::string_view token, std::string& out);
std::string bytes_to_token(std::string_view bytes);

}  // namespace sf::text
