// SPDX-License-Identifier: Apache-2.0
#include "score/math_rule.h"

#include <fmt/format.h>

#include <algorithm>

#include "score/extract.h"
#include "score/math_equal.h"
#include "score/math_lexer.h"
#include "score/strings.h"

namespace sf::score {
namespace {

// A place in the text that states an answer; `box`: what the braces hold.
struct Statement {
  Span span;
  bool box = false;
};

Span trimmed_span(std::string_view text, Span span) {
  std::string_view inside = trimmed(span.of(text));
  size_t begin = inside.empty() ? span.begin : static_cast<size_t>(inside.data() - text.data());
  return {begin, begin + inside.size()};
}

// The last inline formula of a line, or nothing.
std::optional<Span> formula(std::string_view text, Span line) {
  std::string_view words = line.of(text);
  constexpr std::pair<std::string_view, std::string_view> kPairs[] = {{"\\(", "\\)"}, {"\\[", "\\]"}, {"$", "$"}};
  for (const auto& [open, close] : kPairs) {
    size_t end = words.rfind(close);
    if (end == std::string_view::npos || end == 0) continue;
    size_t begin = words.rfind(open, end - 1);
    if (begin == std::string_view::npos || begin + open.size() > end) continue;
    return Span{line.begin + begin + open.size(), line.begin + end};
  }
  return std::nullopt;
}

// Markdown, tags and emoji off both ends.
Span undressed(std::string_view text, Span span) {
  constexpr std::string_view kMarks = " \t\r*_`:";
  while (true) {
    Span before = span;
    while (span.size() > 0 && kMarks.find(text[span.begin]) != std::string_view::npos) ++span.begin;
    while (span.size() > 0 && (kMarks.find(text[span.end - 1]) != std::string_view::npos ||
                               static_cast<unsigned char>(text[span.end - 1]) >= 0xF0))
      --span.end;
    std::string_view inside = span.of(text);
    if (inside.starts_with('<')) {
      size_t end = inside.find('>');
      if (end != std::string_view::npos && end < 12) span.begin += end + 1;
    }
    inside = span.of(text);
    if (inside.ends_with('>')) {
      size_t begin = inside.rfind('<');
      if (begin != std::string_view::npos && inside.size() - begin < 12) span.end = span.begin + begin;
    }
    // A character of four bytes (an emoji) at the end.
    inside = span.of(text);
    if (!inside.empty()) {
      std::string_view last = last_characters(inside, 1);
      if (last.size() == 4) span.end -= 4;
    }
    if (before.begin == span.begin && before.end == span.end) return span;
  }
}

bool says_something(std::string_view words) {
  bool digit = std::any_of(words.begin(), words.end(), is_digit);
  bool notation = words.find_first_of("\\$=") != std::string_view::npos;
  return digit || notation || (!words.empty() && words.find(' ') == std::string_view::npos);
}

// The leading value of a line of prose: "204, since ...", "42 units of ...".
std::optional<Span> leading_value(std::string_view text, Span span) {
  std::string_view words = span.of(text);
  size_t at = !words.empty() && (words[0] == '-' || words[0] == '+') ? 1 : 0;
  if (at >= words.size() || !(is_digit(words[at]) || words[at] == '\\')) return std::nullopt;
  size_t end = words.size();
  for (std::string_view stop : {std::string_view(". "), std::string_view(", "), std::string_view(" ")})
    end = std::min(end, words.find(stop));
  while (end > 0 && (words[end - 1] == '.' || words[end - 1] == ',')) --end;
  return Span{span.begin, span.begin + end};
}

// What an answer line states.
std::optional<Statement> line_statement(std::string_view text, Span rest) {
  Span line = undressed(text, rest);
  if (line.size() == 0 || !says_something(line.of(text))) return std::nullopt;
  Box box = last_box(line.of(text));
  if (box.content) {
    std::string_view before = line.of(text).substr(0, box.whole.begin);
    bool value_first = std::any_of(before.begin(), before.end(), is_digit) && parse_math(trimmed(before));
    if (value_first) return Statement{{line.begin, line.begin + box.whole.begin}, false};
    return Statement{{line.begin + box.content->begin, line.begin + box.content->end}, true};
  }
  if (auto inside = formula(text, line)) return Statement{*inside, false};
  return Statement{line, false};
}

struct Mark {
  size_t at;
  Span rest;
};

// Answer lines from the last to the first; at most this many are looked at.
constexpr int kMostLines = 8;

Span line_from(std::string_view text, size_t begin) {
  size_t end = std::min(text.find('\n', begin), text.size());
  if (trimmed(text.substr(begin, end - begin)).empty() && end < text.size()) {
    size_t next = text.find_first_not_of(" \t\r\n", end);
    if (next == std::string_view::npos) return {begin, end};
    return {next, std::min(text.find('\n', next), text.size())};
  }
  return {begin, end};
}

std::optional<Mark> last_mark(std::string_view text, size_t before) {
  std::string_view part = text.substr(0, before);
  std::optional<Mark> found;
  auto offer = [&](size_t at, size_t begin) {
    if (!found || at > found->at) found = Mark{at, line_from(text, begin)};
  };
  if (auto marker = last_marker(part)) offer(marker->at, marker->rest.begin);
  if (size_t hash = part.rfind("####"); hash != std::string_view::npos) offer(hash, hash + 4);
  constexpr std::string_view kWide = "nswer\xEF\xBC\x9A";
  if (size_t wide = part.rfind(kWide); wide != std::string_view::npos) offer(wide, wide + kWide.size());
  return found;
}

// The value that the text ends in: a formula, or a number after a blank or an equals sign.
std::optional<Statement> closing(std::string_view text) {
  Span all = undressed(text, trimmed_span(text, {0, text.size()}));
  if (all.size() > 0 && text[all.end - 1] == '.') --all.end;
  std::string_view words = all.of(text);
  if (words.ends_with("$") || words.ends_with("\\)") || words.ends_with("\\]")) {
    size_t line = words.rfind('\n');
    Span last{line == std::string_view::npos ? all.begin : all.begin + line + 1, all.end};
    if (auto inside = formula(text, last)) return Statement{*inside, false};
  }
  size_t begin = words.size();
  while (begin > 0 &&
         (is_digit(words[begin - 1]) || std::string_view(".,/-").find(words[begin - 1]) != std::string_view::npos))
    --begin;
  if (begin == words.size() || !is_digit(words.back())) return std::nullopt;
  if (begin > 0 && words[begin - 1] != ' ' && words[begin - 1] != '=') return std::nullopt;
  return Statement{{all.begin + begin, all.end}, false};
}

struct Found {
  std::optional<Statement> statement;
  bool unclosed = false;
};

Found find_statement(std::string_view text) {
  Box box = last_box(text);
  Found found;
  found.unclosed = box.unclosed;
  size_t before = text.size();
  for (int i = 0; i < kMostLines; ++i) {
    std::optional<Mark> mark = last_mark(text, before);
    bool box_later = box.content && (!mark || (box.whole.begin > mark->at && box.whole.begin >= mark->rest.end));
    if (box_later || !mark) break;
    if (auto statement = line_statement(text, mark->rest)) {
      found.statement = statement;
      return found;
    }
    before = mark->at;
  }
  if (box.content)
    found.statement = Statement{*box.content, true};
  else if (!box.unclosed)
    found.statement = closing(text);
  return found;
}

// The notation of a statement, and its part that is read.
struct Reading {
  std::optional<MathNode> node;
  Span span;
};

Reading reading(std::string_view text, const Statement& statement) {
  Span span = trimmed_span(text, statement.span);
  if (!statement.box) {
    span = undressed(text, span);
    while (span.size() > 0 && text[span.end - 1] == '.') --span.end;
  }
  Reading result{parse_math(span.of(text)), span};
  if (result.node || statement.box) return result;
  if (auto value = leading_value(text, span)) result = {parse_math(value->of(text)), *value};
  return result;
}

std::optional<MathNode> gold_node(std::string_view gold) {
  Box box = last_box(gold);
  return parse_math(box.content ? box.content->of(gold) : gold);
}

Verdict judge(std::string_view gold, const Answer& answer, const RuleOptions& options) {
  Visible visible = visible_part(answer);
  if (visible.unfinished && !options.allow_unfinished)
    return {answer.cut ? Outcome::kTruncated : Outcome::kUnfinished, {}, "", "unfinished_thinking"};
  std::string_view text = visible.span.of(answer.text);
  Found found = find_statement(text);
  if (!found.statement) return without_answer(answer, text, found.unclosed ? "unclosed_box" : "no_statement");
  Reading read = reading(text, *found.statement);
  Span placed{read.span.begin + visible.span.begin, read.span.end + visible.span.begin};
  std::string_view words = read.span.of(text);
  if (words.empty()) return without_answer(answer, text, "empty_statement");
  std::string compact = compact_math(words), wanted = compact_math(gold);
  std::string normal = read.node ? math_normal(*read.node) : compact;
  if (normal.empty()) normal = compact;
  if (compact == wanted) return {Outcome::kCorrect, placed, std::move(normal), "same_text"};
  std::optional<MathNode> meant = gold_node(gold);
  if (!read.node || !meant)
    return {Outcome::kWrong, placed, std::move(normal), read.node ? "gold_not_understood" : "not_understood"};
  switch (math_equal(*meant, *read.node)) {
    case MathVerdict::kEqual:
      return {Outcome::kCorrect, placed, std::move(normal), "equal"};
    case MathVerdict::kUndecided:
      return {Outcome::kUndecided, placed, std::move(normal), "needs_algebra"};
    default:
      return {Outcome::kWrong, placed, std::move(normal), "differs"};
  }
}

}  // namespace

Rule math_rule(const RuleOptions& options) {
  return Rule(
      {.name = "math",
       .version = 2,
       .tables = math_lexer_tables() + refusal_table() + fmt::format("allow_unfinished {}\n", options.allow_unfinished),
       .judge = [options](std::string_view gold, const Answer& answer) { return judge(gold, answer, options); },
       .check_gold = {},
       .reads_gold = [](std::string_view gold) { return gold_node(gold).has_value(); }});
}

}  // namespace sf::score
