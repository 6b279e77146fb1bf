// SPDX-License-Identifier: Apache-2.0
#include "score/plain_rules.h"

#include <fmt/format.h>

#include "base/error.h"
#include "score/extract.h"
#include "score/strings.h"

namespace sf::score {
namespace {

Span place(std::string_view text, std::string_view part) {
  size_t begin = static_cast<size_t>(part.data() - text.data());
  return {begin, begin + part.size()};
}

Verdict compared(std::string_view text, std::string_view found, std::string normal, std::string_view gold_normal) {
  bool equal = normal == gold_normal;
  return {equal ? Outcome::kCorrect : Outcome::kWrong, place(text, found), std::move(normal),
          equal ? "equal" : "differs"};
}

Verdict unfinished(const Answer& answer) {
  return {answer.cut ? Outcome::kTruncated : Outcome::kUnfinished, {}, "", "unfinished_thinking"};
}

Verdict judge_exact(std::string_view gold, const Answer& answer) {
  Visible visible = visible_part(answer);
  if (visible.unfinished) return unfinished(answer);
  std::string_view text = trimmed(visible.span.of(answer.text));
  if (text.empty()) return without_answer(answer, text, "empty");
  return compared(answer.text, text, std::string(text), trimmed(gold));
}

Verdict judge_regex(std::string_view gold, const Answer& answer, const RuleOptions& options) {
  Visible visible = visible_part(answer);
  if (visible.unfinished) return unfinished(answer);
  std::string_view text = visible.span.of(answer.text);
  std::optional<Span> found;
  try {
    found = options.find(text);
  } catch (const Error&) {
    return {Outcome::kNoAnswer, {}, "", std::string(kGaveUp)};
  }
  if (!found) return without_answer(answer, text, "no_match");
  std::string_view part = trimmed(found->of(text));
  return compared(answer.text, part, std::string(part), trimmed(gold));
}

// The number that begins at `at` (after an optional "$"): sign, digits, commas, a point with digits after it.
std::string_view number_at(std::string_view text, size_t at) {
  size_t end = at;
  if (end < text.size() && text[end] == '-') ++end;
  size_t first = end;
  while (end < text.size() && (is_digit(text[end]) || (text[end] == ',' && end > first))) ++end;
  if (end + 1 < text.size() && text[end] == '.' && is_digit(text[end + 1]))
    for (++end; end < text.size() && is_digit(text[end]);) ++end;
  while (end > first && text[end - 1] == ',') --end;
  return end == first ? std::string_view() : text.substr(at, end - at);
}

std::string_view last_number(std::string_view text) {
  size_t end = text.find_last_of("0123456789");
  if (end == std::string_view::npos) return "";
  size_t begin = end;
  while (begin > 0 && (is_digit(text[begin - 1]) || text[begin - 1] == ',' || text[begin - 1] == '.')) --begin;
  while (!is_digit(text[begin])) ++begin;
  if (begin > 0 && text[begin - 1] == '-') --begin;
  return number_at(text, begin);
}

// "1,234.50" and "01234.5" are "1234.5"; "-0" is "0".
std::string number_normal(std::string_view number) {
  std::string text(number);
  remove_all(text, ",");
  bool negative = text.starts_with('-');
  if (negative) text.erase(0, 1);
  if (text.find('.') != std::string::npos) {
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
  }
  text.erase(0, std::min(text.find_first_not_of('0'), text.size()));
  if (text.empty() || text[0] == '.') text.insert(0, "0");
  return negative && text != "0" ? "-" + text : text;
}

// What "#### 42" states, else the last number.
std::string_view gsm8k_statement(std::string_view text) {
  size_t marker = text.rfind("####");
  if (marker == std::string_view::npos) return last_number(text);
  size_t at = marker + 4;
  while (at < text.size() && (text[at] == ' ' || text[at] == '$')) ++at;
  return number_at(text, at);
}

Verdict judge_gsm8k(std::string_view gold, const Answer& answer) {
  Visible visible = visible_part(answer);
  if (visible.unfinished) return unfinished(answer);
  std::string_view text = visible.span.of(answer.text);
  std::string_view found = gsm8k_statement(text);
  if (found.empty()) return without_answer(answer, text, "no_number");
  return compared(answer.text, found, number_normal(found), number_normal(gsm8k_statement(gold)));
}

}  // namespace

Rule exact_rule() {
  return Rule({.name = "exact", .version = 1, .tables = refusal_table(), .judge = judge_exact, .check_gold = {}});
}

Rule regex_rule(const RuleOptions& options) {
  SF_CHECK(!options.pattern.empty() && options.find, Exit::kUsage, "rule regex needs a pattern: give --pattern");
  return Rule(
      {.name = "regex",
       .version = 2,
       .tables = "pattern " + options.pattern + "\n" + refusal_table(),
       .judge = [options](std::string_view gold, const Answer& answer) { return judge_regex(gold, answer, options); },
       .check_gold = {}});
}

Rule gsm8k_rule() {
  return Rule({.name = "gsm8k",
               .version = 1,
               .tables = refusal_table(),
               .judge = judge_gsm8k,
               .check_gold = [](std::string_view gold) -> std::string {
                 return gsm8k_statement(gold).empty() ? "no number" : "";
               }});
}

}  // namespace sf::score
