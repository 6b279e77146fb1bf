// SPDX-License-Identifier: Apache-2.0
#include "score/strings.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"

namespace sf::score {
namespace {

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

constexpr std::array<std::string_view, 21> kWideSpaces = {
    "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81", "\xE2\x80\x82", "\xE2\x80\x83",
    "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87", "\xE2\x80\x88", "\xE2\x80\x89", "\xE2\x80\x8A",
    "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80", "\x1C",         "\x1D"};

}  // namespace

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}
std::string lowered(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), lower);
  return result;
}
bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

size_t character_size(std::string_view text, size_t at) {
  size_t size = utf8_length(text, at);
  return size == 0 ? 1 : size;
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += character_size(text, at)) ++count;
  return count;
}

std::string_view last_characters(std::string_view text, size_t count) {
  size_t at = text.size();
  for (; count > 0 && at > 0; --count) {
    size_t back = 1;
    while (back < 4 && back < at && is_continuation(text[at - back])) ++back;
    at -= utf8_length(text, at - back) == back ? back : 1;
  }
  return text.substr(at);
}

size_t space_size(std::string_view text, size_t at) {
  char c = text[at];
  if (c == ' ' || (c >= '\t' && c <= '\r') || (c >= '\x1C' && c <= '\x1F')) return 1;
  if (static_cast<unsigned char>(c) < 0x80) return 0;
  for (std::string_view wide : kWideSpaces)
    if (text.substr(at, wide.size()) == wide) return wide.size();
  return 0;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty()) {
    size_t size = space_size(text, 0);
    if (size == 0) break;
    text.remove_prefix(size);
  }
  while (!text.empty()) {
    std::string_view last = last_characters(text, 1);
    if (space_size(last, 0) != last.size()) break;
    text.remove_suffix(last.size());
  }
  return text;
}

std::string_view trimmed_ascii(std::string_view text) {
  auto blank = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  size_t at = text.find(from);
  if (at == std::string::npos) return;
  std::string result;
  result.reserve(text.size());
  size_t begin = 0;
  for (; at != std::string::npos; at = text.find(from, begin)) {
    result.append(text, begin, at - begin).append(to);
    begin = at + from.size();
  }
  text = result.append(text, begin);
}

void remove_all(std::string& text, std::string_view what) {
  replace_all(text, what, "");
}

std::vector<std::string> split(std::string_view text, std::string_view by) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t at = text.find(by); at != std::string_view::npos; at = text.find(by, begin)) {
    parts.emplace_back(text.substr(begin, at - begin));
    begin = at + by.size();
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

namespace {

bool equals_lowered(std::string_view text, size_t at, std::string_view word) {
  if ((text[at] | 0x20) != (word[0] | 0x20)) return false;  // most places end here
  for (size_t i = 0; i < word.size(); ++i)
    if (lower(text[at + i]) != word[i]) return false;
  return true;
}

}  // namespace

size_t rfind_lowered(std::string_view text, std::string_view word) {
  if (word.size() > text.size()) return std::string_view::npos;
  for (size_t at = text.size() - word.size() + 1; at-- > 0;)
    if (equals_lowered(text, at, word)) return at;
  return std::string_view::npos;
}

size_t find_lowered(std::string_view text, std::string_view word, size_t from) {
  for (size_t at = from; at + word.size() <= text.size(); ++at)
    if (equals_lowered(text, at, word)) return at;
  return std::string_view::npos;
}

bool valid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    size_t size = utf8_length(text, at);
    if (size == 0) return false;
    at += size;
  }
  return true;
}

std::string repaired_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    size_t size = utf8_length(text, at);
    if (size == 0)
      result += "\xEF\xBF\xBD", ++at;
    else
      result.append(text, at, size), at += size;
  }
  return result;
}

}  // namespace sf::score
