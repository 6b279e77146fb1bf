// SPDX-License-Identifier: Apache-2.0
#include "score/hendrycks.h"

#include "score/strings.h"

namespace sf::score {
namespace {

constexpr std::string_view kSpaced = "\\boxed ", kOpened = "\\boxed{";

// Python's int(): sign, digits with single underscores between, white space around.
bool reads_as_int(std::string_view text) {
  text = trimmed(text);
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  if (text.empty() || text.size() > 4300 || text.front() == '_' || text.back() == '_') return false;
  for (size_t i = 0; i < text.size(); ++i)
    if (!is_digit(text[i]) && (text[i] != '_' || text[i - 1] == '_')) return false;
  return true;
}

// As Python prints an int.
bool canonical_int(std::string_view text) {
  bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  if (!all_digits(text)) return false;
  return text == "0" ? !negative : text[0] != '0';
}

// \sqrt followed by one character: that character gets braces. False: nothing follows.
bool complete_roots(std::string& text) {
  std::vector<std::string> parts = split(text, "\\sqrt");
  std::string result = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].empty()) return false;
    size_t size = character_size(parts[i], 0);
    if (parts[i][0] == '{')
      result += "\\sqrt" + parts[i];
    else
      result += "\\sqrt{" + parts[i].substr(0, size) + "}" + parts[i].substr(size);
  }
  text = result;
  return true;
}

// \fracab, \fraca{b}: braces around single characters. False: nothing follows; one character alone leaves all as it is.
bool complete_fractions(std::string& text) {
  std::vector<std::string> parts = split(text, "\\frac");
  std::string result = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::string& part = parts[i];
    if (part.empty()) return false;
    result += "\\frac";
    if (part[0] == '{') {
      result += part;
      continue;
    }
    size_t first = character_size(part, 0);
    if (first == part.size()) return true;
    std::string above = "{" + part.substr(0, first) + "}";
    if (part[first] == '{') {
      result += above + part.substr(first);
      continue;
    }
    size_t second = character_size(part, first);
    result += above + "{" + part.substr(first, second) + "}" + part.substr(first + second);
  }
  text = result;
  return true;
}

// "a/b" of two integers as Python prints them. False: the sides are no integers at all.
bool slash_to_fraction(std::string& text) {
  std::vector<std::string> parts = split(text, "/");
  if (parts.size() != 2) return true;
  if (!reads_as_int(parts[0]) || !reads_as_int(parts[1])) return false;
  if (canonical_int(parts[0]) && canonical_int(parts[1])) text = "\\frac{" + parts[0] + "}{" + parts[1] + "}";
  return true;
}

}  // namespace

OldBox old_last_box(std::string_view text) {
  if (size_t at = text.rfind(kSpaced); at != std::string_view::npos) {
    std::string_view rest = text.substr(at + kSpaced.size());
    return {OldBox::kSpace, rest.substr(0, rest.find('$'))};
  }
  size_t begin = text.rfind("\\boxed");
  if (begin == std::string_view::npos) begin = text.rfind("\\fbox");
  if (begin == std::string_view::npos) return {};
  long depth = 0;
  for (size_t at = begin; at < text.size(); ++at) {
    if (text[at] == '{') ++depth;
    if (text[at] != '}' || --depth != 0) continue;
    std::string_view box = text.substr(begin, at + 1 - begin);
    if (!box.starts_with(kOpened)) return {OldBox::kBroken, ""};
    return {OldBox::kBraced, box.substr(kOpened.size(), box.size() - kOpened.size() - 1)};
  }
  return {};
}

std::optional<std::string> old_normal(std::string_view given, bool strict_slash) {
  std::string text(given);
  remove_all(text, "\n");
  remove_all(text, "\\!");
  replace_all(text, "\\\\", "\\");
  replace_all(text, "tfrac", "frac");
  replace_all(text, "dfrac", "frac");
  for (std::string_view gone : {"\\left", "\\right", "^{\\circ}", "^\\circ", "\\$"}) remove_all(text, gone);
  std::vector<std::string> units = split(text, "\\text{ ");
  if (units.size() > 2) return std::nullopt;
  text = units[0];
  if (!strict_slash) remove_all(text, "\\\\%");
  remove_all(text, "\\%");
  replace_all(text, " .", " 0.");
  replace_all(text, "{.", "{0.");
  if (text.empty()) return text;
  if (text[0] == '.') text.insert(0, "0");
  std::vector<std::string> sides = split(text, "=");
  if (sides.size() == 2 && count_characters(sides[0]) <= 2) text = sides[1];
  if (!complete_roots(text)) return std::nullopt;
  remove_all(text, " ");
  if (!complete_fractions(text)) return std::nullopt;
  if (text == "0.5") text = "\\frac{1}{2}";
  if (!slash_to_fraction(text) && strict_slash) return std::nullopt;
  return text;
}

bool old_equal(std::string_view a, std::string_view b, bool strict_slash) {
  std::optional<std::string> left = old_normal(a, strict_slash), right = old_normal(b, strict_slash);
  if (!left || !right) return a == b;
  return *left == *right;
}

}  // namespace sf::score
