// SPDX-License-Identifier: Apache-2.0
#include "score/aime.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/fault.h"
#include "score/extract.h"
#include "score/strings.h"

namespace sf::score {
namespace {

constexpr size_t kMostBytes = 1024;  // a longer candidate is no integer; bounds the work of unwrapping

using Replacement = std::pair<std::string_view, std::string_view>;
constexpr std::array<Replacement, 11> kCharacters = {{{"\xEF\xBC\x90", "0"},
                                                      {"\xEF\xBC\x91", "1"},
                                                      {"\xEF\xBC\x92", "2"},
                                                      {"\xEF\xBC\x93", "3"},
                                                      {"\xEF\xBC\x94", "4"},
                                                      {"\xEF\xBC\x95", "5"},
                                                      {"\xEF\xBC\x96", "6"},
                                                      {"\xEF\xBC\x97", "7"},
                                                      {"\xEF\xBC\x98", "8"},
                                                      {"\xEF\xBC\x99", "9"},
                                                      {"\xE2\x88\x92", "-"}}};
constexpr std::array<std::string_view, 12> kRemoved = {"^{\\circ}", "^\\circ", "\\degree", "\xC2\xB0", "\\displaystyle",
                                                       "\\left",    "\\right", "\\,",      "\\!",      "\\;",
                                                       "\\quad",    "~"};
constexpr std::array<std::string_view, 7> kWrappers = {"\\text",  "\\textbf", "\\mathrm",      "\\mathbf",
                                                       "\\boxed", "\\mbox",   "\\displaystyle"};
constexpr std::array<Replacement, 5> kPairs = {{{"$", "$"}, {"\\(", "\\)"}, {"\\[", "\\]"}, {"**", "**"}, {"(", ")"}}};
constexpr std::array<std::string_view, 16> kUnits = {"degrees", "degree", "units",  "unit",    "ways", "points",
                                                     "dollars", "cents",  "square", "inches",  "feet", "meters",
                                                     "cm",      "people", "miles",  "integers"};

constexpr std::array<std::string_view, 3> kNoEquality = {"\\not", "<", ">"};  // before an equals sign

// End of the {...} that opens at `open`, or npos.
size_t closing_brace(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t at = open; at < text.size(); ++at) {
    if (text[at] == '\\')
      ++at;
    else if (text[at] == '{')
      ++depth;
    else if (text[at] == '}' && --depth == 0)
      return at;
  }
  return std::string_view::npos;
}

void unwrap_commands(std::string& text) {
  for (std::string_view wrapper : kWrappers) {
    for (size_t at = text.find(wrapper); at != std::string::npos; at = text.find(wrapper, at)) {
      size_t open = at + wrapper.size();
      size_t end = open < text.size() && text[open] == '{' ? closing_brace(text, open) : std::string::npos;
      if (end == std::string::npos) {
        at = open;
        continue;
      }
      text.erase(end, 1);
      text.erase(at, open + 1 - at);
    }
  }
}

void strip_pairs(std::string& text) {
  for (const auto& [open, close] : kPairs) {
    bool wrapped = text.size() >= open.size() + close.size() && text.starts_with(open) && text.ends_with(close);
    if (wrapped) text = text.substr(open.size(), text.size() - open.size() - close.size());
  }
  if (text.size() >= 2 && text.front() == '{' && closing_brace(text, 0) == text.size() - 1)
    text = text.substr(1, text.size() - 2);
}

// "1,204" and "12,345,678", not "1,2".
bool thousands(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  size_t first = text.find(',');
  if (first == std::string_view::npos || first == 0 || first > 3 || !all_digits(text.substr(0, first))) return false;
  for (text.remove_prefix(first); !text.empty(); text.remove_prefix(4))
    if (text.size() < 4 || text[0] != ',' || !all_digits(text.substr(1, 3))) return false;
  return true;
}

void strip_tail(std::string& text) {
  if (text.ends_with('.')) text.pop_back();
  for (std::string_view percent : {std::string_view("\\%"), std::string_view("%")})
    if (text.ends_with(percent)) text.erase(text.size() - percent.size());
  for (std::string_view unit : kUnits) {
    if (text.size() <= unit.size() || lowered(text.substr(text.size() - unit.size())) != unit) continue;
    char before = text[text.size() - unit.size() - 1];
    if (before == ' ' || is_digit(before)) {
      text.erase(text.size() - unit.size());
      return;
    }
  }
}

// "n = 12", not "n \not= 12" or "n >= 12".
bool states_equality(std::string_view text, size_t equal) {
  std::string_view before = trimmed(text.substr(0, equal));
  return std::ranges::none_of(kNoEquality, [&](std::string_view sign) { return before.ends_with(sign); });
}

// One round of normalisation; rounds repeat until nothing changes.
std::string simpler(std::string text) {
  for (const auto& [from, to] : kCharacters) replace_all(text, from, to);
  for (std::string_view gone : kRemoved) remove_all(text, gone);
  replace_all(text, "\\ ", " ");
  unwrap_commands(text);
  text = std::string(trimmed(text));
  strip_pairs(text);
  text = std::string(trimmed(text));
  strip_tail(text);
  if (size_t equal = text.rfind('='); equal != std::string::npos && states_equality(text, equal))
    text.erase(0, equal + 1);
  replace_all(text, "{,}", ",");
  if (thousands(text)) remove_all(text, ",");
  return std::string(trimmed(text));
}

struct Whole {
  int64_t value = 0;
  bool huge = false;  // beyond int64: certainly out of range
};

std::optional<Whole> whole_number(std::string_view text) {
  bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (!all_digits(text)) return std::nullopt;
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size() - 1));
  Whole whole;
  if (std::from_chars(text.data(), text.data() + text.size(), whole.value).ec != std::errc()) whole.huge = true;
  if (negative) whole.value = -whole.value;
  return whole;
}

// "a/b", \frac{a}{b}, \dfrac{a}{b}, \tfrac{a}{b} as their two sides.
std::optional<std::pair<std::string_view, std::string_view>> sides(std::string_view text) {
  for (std::string_view command :
       {std::string_view("\\frac"), std::string_view("\\dfrac"), std::string_view("\\tfrac")}) {
    if (!text.starts_with(command)) continue;
    std::string_view rest = text.substr(command.size());
    if (rest.empty() || rest[0] != '{') return std::nullopt;
    size_t end = closing_brace(rest, 0);
    if (end == std::string_view::npos || end + 1 >= rest.size() || rest[end + 1] != '{') return std::nullopt;
    if (closing_brace(rest, end + 1) != rest.size() - 1) return std::nullopt;
    return std::pair(trimmed(rest.substr(1, end - 1)), trimmed(rest.substr(end + 2, rest.size() - end - 3)));
  }
  size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  return std::pair(trimmed(text.substr(0, slash)), trimmed(text.substr(slash + 1)));
}

std::optional<Whole> accepted(std::string_view text) {
  if (auto plain = whole_number(text)) return plain;
  if (size_t point = text.find('.'); point != std::string_view::npos) {
    bool zeros = text.find_first_not_of('0', point + 1) == std::string_view::npos;
    return zeros ? whole_number(text.substr(0, point)) : std::nullopt;
  }
  auto parts = sides(text);
  if (!parts) return std::nullopt;
  auto above = whole_number(parts->first), below = whole_number(parts->second);
  if (!above || !below || above->huge || below->huge || below->value == 0) return std::nullopt;
  if (above->value % below->value != 0) return std::nullopt;
  return Whole{above->value / below->value, false};
}

// The number that `text` begins with, unless it is part of a larger expression ("2^3").
std::string_view leading_number(std::string_view text) {
  size_t at = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  size_t begin = at;
  auto digits = [&] {
    while (at < text.size() && is_digit(text[at])) ++at;
  };
  digits();
  if (at == begin) return "";
  while (at + 3 < text.size() && text[at] == ',' && all_digits(text.substr(at + 1, 3))) at += 4;
  digits();
  if (at + 1 < text.size() && (text[at] == '.' || text[at] == '/') && is_digit(text[at + 1])) {
    ++at;
    digits();
  }
  return at < text.size() && (text[at] == '^' || text[at] == '!') ? "" : text.substr(0, at);
}

// What the rest of a marker's line states.
Span stated(std::string_view text, Span rest) {
  std::string_view line = rest.of(text);
  size_t at = 0;
  while (at < line.size()) {
    if (line.compare(at, 2, "\\(") == 0 || line.compare(at, 2, "\\[") == 0)
      at += 2;
    else if (std::string_view(" \t*_`$").find(line[at]) != std::string_view::npos)
      ++at;
    else
      break;
  }
  std::string_view number = leading_number(line.substr(at));
  size_t begin = rest.begin + at, end = begin + number.size();
  if (!number.empty()) return {begin, end};
  end = begin + trimmed(line.substr(at)).size();
  while (at > 0 && end > begin) {  // markup that was opened before the statement is closed behind it
    if (end - begin > 1 && text[end - 2] == '\\' && (text[end - 1] == ')' || text[end - 1] == ']'))
      end -= 2;
    else if (std::string_view(" *_`$").find(text[end - 1]) != std::string_view::npos)
      --end;
    else
      break;
  }
  return {begin, end};
}

std::optional<Span> last_number(std::string_view text) {
  size_t end = text.find_last_of("0123456789");
  if (end == std::string_view::npos) return std::nullopt;
  size_t begin = end;
  while (begin > 0 && is_digit(text[begin - 1])) --begin;
  return Span{begin, end + 1};
}

Verdict graded(std::string_view gold, std::string_view whole_text, Span span, std::string_view source) {
  AimeValue found = aime_value(span.of(whole_text));
  Verdict verdict{Outcome::kWrong, span, found.normal, "differs"};
  if (found.normal.empty()) {
    verdict.outcome = Outcome::kNoAnswer;
    verdict.reason = fmt::format("empty_{}", source);
  } else if (found.out_of_range) {
    verdict.outcome = Outcome::kOutOfRange;
    verdict.reason = "out_of_range";
  } else if (!found.value) {
    verdict.reason = "not_an_integer";
  } else if (found.value == aime_value(gold).value) {
    verdict.outcome = Outcome::kCorrect;
    verdict.reason = "equal";
  }
  return verdict;
}

Verdict judge(std::string_view gold, const Answer& answer, const RuleOptions& options) {
  Visible visible = visible_part(answer);
  if (visible.unfinished && !options.allow_unfinished)
    return {answer.cut ? Outcome::kTruncated : Outcome::kUnfinished, {}, "", "unfinished_thinking"};
  std::string_view text = visible.span.of(answer.text);
  auto placed = [&](Span span) { return Span{span.begin + visible.span.begin, span.end + visible.span.begin}; };
  Box box = last_box(text);
  if (box.content) return graded(gold, answer.text, placed(*box.content), "box");
  if (auto marker = last_marker(text)) {
    Verdict verdict = graded(gold, answer.text, placed(stated(text, marker->rest)), "marker");
    if (verdict.outcome != Outcome::kNoAnswer) return verdict;
    return without_answer(answer, text, verdict.reason);
  }
  if (options.last_number)
    if (auto number = last_number(text)) return graded(gold, answer.text, placed(*number), "number");
  return without_answer(answer, text, box.unclosed ? "unclosed_box" : "no_statement");
}

std::string tables(const RuleOptions& options) {
  std::string text = fmt::format("most {} bytes\n", kMostBytes);
  for (const auto& [from, to] : kCharacters) text += fmt::format("character {} {}\n", from, to);
  text += fmt::format("removed {}\nwrappers {}\nunits {}\n", fmt::join(kRemoved, " "), fmt::join(kWrappers, " "),
                      fmt::join(kUnits, " "));
  for (const auto& [open, close] : kPairs) text += fmt::format("pair {} {}\n", open, close);
  text += fmt::format("no equality {}\n", fmt::join(kNoEquality, " "));
  return text + refusal_table() +
         fmt::format("allow_unfinished {}\nlast_number {}\n", options.allow_unfinished, options.last_number);
}

}  // namespace

AimeValue aime_value(std::string_view candidate) {
  if (candidate.size() > kMostBytes) return {std::nullopt, false, "(longer than 1,024 bytes)"};
  std::string text(candidate);
  for (std::string next = simpler(text); next != text; next = simpler(text)) text = std::move(next);
  std::optional<Whole> whole = accepted(text);
  if (!whole) return {std::nullopt, false, std::move(text)};
  if (fault("score.keep_zeros") && text.size() > 1 && text[0] == '0') return {std::nullopt, false, std::move(text)};
  if (whole->huge || whole->value < 0 || whole->value > 999) return {std::nullopt, true, std::move(text)};
  return {whole->value, false, std::to_string(whole->value)};
}

Rule aime_rule(const RuleOptions& options) {
  return Rule({.name = "aime-v1",
               .version = 2,
               .tables = tables(options),
               .judge = [options](std::string_view gold, const Answer& answer) { return judge(gold, answer, options); },
               .check_gold = [](std::string_view gold) -> std::string {
                 return aime_value(gold).value ? "" : "no integer of 0 to 999";
               }});
}

}  // namespace sf::score
