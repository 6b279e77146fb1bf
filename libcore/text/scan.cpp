// SPDX-License-Identifier: Apache-2.0
#include "text/scan.h"

#include "base/error.h"
#include "text/split.h"
#include "text/unicode.h"

namespace sf::text {

const std::string_view kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

// Position in valid UTF-8 with the class of the character there; class 0 and length 0 at the end.
struct Here {
  const char* p;
  const char* end;
  const uint8_t* classes;
  uint8_t bits = 0;
  unsigned length = 0;

  Here(const char* at, const char* stop, const uint8_t* table) : p(at), end(stop), classes(table) { look(); }
  void look() {
    if (p >= end) {
      bits = 0, length = 0;
    } else if (static_cast<unsigned char>(*p) < 0x80) {
      bits = classes[static_cast<unsigned char>(*p)], length = 1;
    } else {
      bits = classes[decode_valid(p, length)];
    }
  }
  bool done() const { return p >= end; }
  bool newline() const { return !done() && (*p == '\n' || *p == '\r'); }
  void step() {
    p += length;
    look();
  }
  void run_of(uint8_t wanted) {
    while (bits & wanted) step();
  }
  void run_without(uint8_t excluded) {
    while (!done() && !(bits & excluded)) step();
  }
};

// Length of a contraction that starts at the apostrophe `p`, or 0. Folded: upper case and U+017F count.
size_t contraction(const char* p, const char* end, bool folded) {
  auto letter = [&](size_t i) {
    if (p + i >= end) return '\0';
    char c = p[i];
    return folded && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  char a = letter(1), b = letter(2);
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if (folded && end - p >= 3 && p[1] == '\xC5' && p[2] == '\xBF') return 3;
  return 0;
}

// \s+(?!\S)|\s+ from a whitespace character: all but the last character, which belongs to what follows.
const char* white_run(Here at) {
  const char* start = at.p;
  const char* last = at.p;
  while (at.bits & kSpace) last = at.p, at.step();
  return at.done() || last == start ? at.p : last;
}

const char* gpt2_piece(const Here& start) {
  if (*start.p == '\'')
    if (size_t n = contraction(start.p, start.end, false)) return start.p + n;
  Here at = start;
  if (*at.p == ' ') at.step();
  if (!at.done()) {
    uint8_t kind = at.bits & (kLetter | kNumber);
    if (kind) return at.run_of(kind), at.p;
    if (!(at.bits & kSpace)) return at.run_without(kSpace | kLetter | kNumber), at.p;
  }
  return white_run(start);
}

// \s*[\r\n]+ : up to the last line end of the whitespace run, or null if it has none.
const char* line_ends(Here at) {
  const char* after = nullptr;
  for (; at.bits & kSpace; at.step())
    if (at.newline()) after = at.p + 1;
  return after;
}

template <uint8_t kWord, int kDigits>
const char* qwen_piece(const Here& start) {
  if (*start.p == '\'')
    if (size_t n = contraction(start.p, start.end, true)) return start.p + n;
  Here at = start;
  if (at.bits & kWord) return at.run_of(kWord), at.p;
  if (at.bits & kNumber) {
    for (int i = 0; i < kDigits && (at.bits & kNumber); ++i) at.step();
    return at.p;
  }
  bool line_end = at.newline();
  Here next = start;
  next.step();
  if (!line_end && (next.bits & kWord)) return next.run_of(kWord), next.p;
  if (*start.p == ' ' && !next.done() && !(next.bits & (kSpace | kNumber))) at = next;
  if (!(at.bits & kSpace)) {
    at.run_without(kSpace | kWord | kNumber);
    while (at.newline()) at.step();
    return at.p;
  }
  if (const char* after = line_ends(start)) return after;
  return white_run(start);
}

template <typename Piece>
void scan_with(Piece piece, std::string_view text, std::vector<std::string_view>& out) {
  const uint8_t* classes = unicode_classes();
  const char* p = text.data();
  const char* end = p + text.size();
  while (p < end) {
    const char* stop = piece(Here(p, end, classes));
    out.emplace_back(p, static_cast<size_t>(stop - p));
    p = stop;
  }
}

}  // namespace

Scan scan_of_pattern(std::string_view pattern) {
  if (pattern == kGpt2Pattern) return Scan::kGpt2;
  if (pattern == kQwen2Pattern) return Scan::kQwen2;
  if (pattern == kLlama3Pattern) return Scan::kLlama3;
  if (pattern == kQwen35Pattern) return Scan::kQwen35;
  return Scan::kNone;
}

void scan_pieces(Scan scan, std::string_view text, std::vector<std::string_view>& out) {
  switch (scan) {
    case Scan::kGpt2:
      return scan_with(gpt2_piece, text, out);
    case Scan::kQwen2:
      return scan_with(qwen_piece<kLetter, 1>, text, out);
    case Scan::kLlama3:
      return scan_with(qwen_piece<kLetter, 3>, text, out);
    case Scan::kQwen35:
      return scan_with(qwen_piece<kLetter | kMark, 1>, text, out);
    case Scan::kNone:
      break;
  }
  SF_ASSERT(scan != Scan::kNone);
}

}  // namespace sf::text
