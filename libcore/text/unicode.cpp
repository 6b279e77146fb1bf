// SPDX-License-Identifier: Apache-2.0
#include "text/unicode.h"

#include <utf8proc.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.h"

namespace sf::text {
namespace {

constexpr char32_t kCodePoints = 0x110000;

bool white_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string normalise(std::string_view text) {
  utf8proc_uint8_t* result = nullptr;
  utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &result, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(result, std::free);
  if (size < 0) fail(Exit::kData, "text cannot be normalised (NFC): {}", utf8proc_errmsg(size));
  return {reinterpret_cast<const char*>(result), static_cast<size_t>(size)};
}

uint8_t class_of(char32_t c) {
  const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  uint8_t bits = white_space(c) ? kSpace : 0;
  switch (property->category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      bits |= kLetter;
      break;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      bits |= kNumber;
      break;
    // What composes with something before it, or is reordered, is a mark or a conjoining jamo.
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      bits |= kMark | kMayCompose;
      break;
    case UTF8PROC_CATEGORY_PC:
      bits |= kConnector;
      break;
    default:
      break;
  }
  if (property->combining_class != 0 || (c >= 0x1161 && c <= 0x1175) || (c >= 0x11A8 && c <= 0x11C2))
    bits |= kMayCompose;
  if (property->decomp_seqindex != UINT16_MAX && property->decomp_type == 0 && c >= 0x80) {
    std::string self;
    append_utf8(self, c);
    if (normalise(self) != self) bits |= kMayCompose;
  }
  return bits;
}

struct AlphabetTables {
  std::array<char32_t, 256> of_byte{};
  std::array<int16_t, 324> to_byte{};  // code point -> byte or -1; the highest in use is U+0143

  AlphabetTables() {
    to_byte.fill(-1);
    char32_t next = 256;
    for (unsigned b = 0; b < 256; ++b) {
      bool same = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      of_byte[b] = same ? b : next++;
      to_byte[of_byte[b]] = static_cast<int16_t>(b);
    }
  }
};

const AlphabetTables& alphabet() {
  static const AlphabetTables tables;
  return tables;
}

}  // namespace

const uint8_t* unicode_classes() {
  static const std::vector<uint8_t> table = [] {
    std::vector<uint8_t> bits(kCodePoints);
    for (char32_t c = 0; c < kCodePoints; ++c) bits[c] = c >= 0xD800 && c < 0xE000 ? 0 : class_of(c);
    return bits;
  }();
  return table.data();
}

Decoded decode_utf8(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (at >= text.size()) return {};
  unsigned lead = byte(at);
  if (lead < 0x80) return {lead, 1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {0xFFFD, 1, false, false};
  unsigned more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  char32_t value = lead & (0x3F >> more);
  unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (unsigned i = 1; i <= more; ++i) {
    if (at + i >= text.size()) return {0xFFFD, static_cast<uint8_t>(i), false, true};
    unsigned next = byte(at + i);
    if (next < low || next > high) return {0xFFFD, static_cast<uint8_t>(i), false, false};
    value = value << 6 | (next & 0x3F);
    low = 0x80, high = 0xBF;
  }
  return {value, static_cast<uint8_t>(more + 1), true, false};
}

void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 63));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 63));
    out += static_cast<char>(0x80 | (c & 63));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 63));
    out += static_cast<char>(0x80 | (c >> 6 & 63));
    out += static_cast<char>(0x80 | (c & 63));
  }
}

size_t invalid_utf8_at(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (at + 8 <= text.size()) {
      uint64_t word;
      std::memcpy(&word, text.data() + at, 8);
      if ((word & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    Decoded step = decode_utf8(text, at);
    if (!step.valid) return at;
    at += step.length;
  }
  return std::string_view::npos;
}

std::string replace_invalid(std::string_view text) {
  if (invalid_utf8_at(text) == std::string_view::npos) return std::string(text);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    Decoded step = decode_utf8(text, at);
    append_utf8(out, step.value);
    at += step.length;
  }
  return out;
}

size_t count_code_points(std::string_view valid) {
  size_t count = 0;
  for (unsigned char c : valid) count += (c & 0xC0) != 0x80;
  return count;
}

std::u32string to_code_points(std::string_view valid) {
  std::u32string out;
  out.reserve(valid.size());
  for (size_t at = 0; at < valid.size();) {
    Decoded step = decode_utf8(valid, at);
    out += step.value;
    at += step.length;
  }
  return out;
}

std::string to_utf8(std::u32string_view code_points) {
  std::string out;
  out.reserve(code_points.size());
  for (char32_t c : code_points) append_utf8(out, c);
  return out;
}

bool may_need_nfc(std::string_view valid) {
  const char* p = valid.data();
  const char* end = p + valid.size();
  const uint8_t* classes = unicode_classes();
  while (p < end) {
    if (static_cast<unsigned char>(*p) < 0x80) {
      ++p;
      continue;
    }
    unsigned length;
    if (classes[decode_valid(p, length)] & kMayCompose) return true;
    p += length;
  }
  return false;
}

std::string nfc(std::string_view valid) {
  return may_need_nfc(valid) ? normalise(valid) : std::string(valid);
}

char32_t to_upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
char32_t to_lower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}
namespace {

// Several characters where folding makes several: then upper case is the upper case of those.
std::u32string expansion(char32_t c) {
  utf8proc_int32_t folded[8];
  int boundary = 0;
  const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  if (c < 0x80 || property->category == UTF8PROC_CATEGORY_LU) return {};
  utf8proc_ssize_t n =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 8, UTF8PROC_CASEFOLD, &boundary);
  return n > 1 && n <= 8 ? std::u32string(folded, folded + n) : std::u32string();
}

bool cased(char32_t c) {
  return to_upper(c) != c || to_lower(c) != c;
}
bool case_ignorable(char32_t c) {
  return (unicode_classes()[c] & kMark) || c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2019 || c == 0xAD;
}

// Capital sigma is written final behind a letter and not before one.
bool final_sigma(std::u32string_view text, size_t at) {
  size_t i = at;
  while (i > 0 && case_ignorable(text[i - 1])) --i;
  if (i == 0 || !cased(text[i - 1])) return false;
  for (i = at + 1; i < text.size() && case_ignorable(text[i]);) ++i;
  return i >= text.size() || !cased(text[i]);
}

}  // namespace

void append_upper(std::u32string& out, char32_t c) {
  std::u32string several = expansion(c);
  if (several.empty()) out += to_upper(c);
  for (char32_t part : several) out += to_upper(part);
}

void append_title(std::u32string& out, char32_t c) {
  std::u32string several = expansion(c);
  if (several.empty()) out += static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
  for (size_t i = 0; i < several.size(); ++i) out += i == 0 ? to_upper(several[i]) : several[i];
}

void append_lower(std::u32string& out, std::u32string_view text, size_t at) {
  if (text[at] == 0x130)
    out += U"i\u0307";
  else if (text[at] == 0x3A3 && final_sigma(text, at))
    out += U'\u03C2';
  else
    out += to_lower(text[at]);
}

bool python_space(char32_t c) {
  return white_space(c) || (c >= 0x1C && c <= 0x1F);
}

const std::array<char32_t, 256>& byte_alphabet() {
  return alphabet().of_byte;
}

bool token_to_bytes(std::string_view token, std::string& out) {
  const auto& to_byte = alphabet().to_byte;
  out.clear();
  for (size_t at = 0; at < token.size();) {
    Decoded step = decode_utf8(token, at);
    if (!step.valid || step.value >= to_byte.size() || to_byte[step.value] < 0) {
      out = token;
      return false;
    }
    out += static_cast<char>(to_byte[step.value]);
    at += step.length;
  }
  return true;
}

std::string bytes_to_token(std::string_view bytes) {
  std::string out;
  for (unsigned char b : bytes) append_utf8(out, byte_alphabet()[b]);
  return out;
}

}  // namespace sf::text
