// SPDX-License-Identifier: Apache-2.0
// verl's math_dapo: the last 300 characters, the last "Answer:" line, a string form of its own.
#include <fmt/format.h>

#include <array>

#include "base/fault.h"
#include "score/public_rules.h"
#include "score/strings.h"

namespace sf::score {
namespace {

constexpr size_t kWindow = 300, kBoxWindow = 100;  // characters

using Replacement = std::pair<std::string_view, std::string_view>;
constexpr std::array<Replacement, 10> kReplaced = {{{"an ", ""},
                                                    {"a ", ""},
                                                    {".$", "$"},
                                                    {"\\$", ""},
                                                    {"\\ ", ""},
                                                    {" ", ""},
                                                    {"mbox", "text"},
                                                    {",\\text{and}", ","},
                                                    {"\\text{and}", ","},
                                                    {"\\text{m}", "\\text{}"}}};
constexpr std::array<std::string_view, 40> kRemoved = {
    "square",     "ways",       "integers",  "dollars",      "mph",
    "inches",     "hours",      "km",        "units",        "\\ldots",
    "sue",        "points",     "feet",      "minutes",      "digits",
    "cents",      "degrees",    "cm",        "gm",           "pounds",
    "meters",     "meals",      "edges",     "students",     "childrentickets",
    "multiples",  "\\text{s}",  "\\text{.}", "\\text{\ns}",  "\\text{}^2",
    "\\text{}^3", "\\text{\n}", "\\text{}",  "\\mathrm{th}", "^\\circ",
    "^{\\circ}",  "\\;",        ",\\!",      "{,}",          "\""};
constexpr std::string_view kRemovedLast = "\\dots";

// Within each line that has two dollars, the first pair's inside in dollars replaces the line.
std::string in_dollars(const std::string& text) {
  std::vector<std::string> lines = split(text, "\n");
  for (std::string& line : lines) {
    size_t first = line.find('$');
    size_t second = first == std::string::npos ? first : line.find('$', first + 1);
    if (second != std::string::npos) line = line.substr(first, second + 1 - first);
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

// COMMAND{inside} becomes inside; the end is the line's next "}", or its last one if `greedy`.
std::string unwrapped(const std::string& text, std::string_view command, bool greedy) {
  std::string result;
  size_t begin = 0;
  for (size_t at = text.find(command); at != std::string::npos; at = text.find(command, at)) {
    size_t inside = at + command.size();
    size_t line_end = std::min(text.find('\n', inside), text.size());
    std::string_view line = std::string_view(text).substr(inside, line_end - inside);
    size_t end = greedy ? line.rfind('}') : line.find('}');
    if (end == std::string_view::npos) {
      at = inside;
      continue;
    }
    result.append(text, begin, at - begin).append(line.substr(0, end));
    begin = at = inside + end + 1;
  }
  return result.append(text, begin);
}

// "frac" + x + y becomes frac{x}{y} unless x is "{"; y is on the same line.
std::string completed_fractions(const std::string& text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    size_t x = at + 4;
    bool here = text.compare(at, 4, "frac") == 0 && x < text.size() && text[x] != '{';
    size_t y = here ? x + character_size(text, x) : 0;
    if (!here || y >= text.size() || text[y] == '\n') {
      result += text[at++];
      continue;
    }
    size_t end = y + character_size(text, y);
    result += "frac{" + text.substr(x, y - x) + "}{" + text.substr(y, end - y) + "}";
    at = end;
  }
  return result;
}

std::string completed_roots(const std::string& text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    size_t x = at + 4;
    if (text.compare(at, 4, "sqrt") != 0 || x >= text.size() || text[x] == '{') {
      result += text[at++];
      continue;
    }
    size_t end = x + character_size(text, x);
    result += "sqrt{" + text.substr(x, end - x) + "}";
    at = end;
  }
  return result;
}

// "answer", white space, ":", white space (newlines too), then at least one character up to the line's end.
std::string_view last_answer_line(std::string_view text) {
  constexpr std::string_view kWord = "answer";
  std::string_view found;
  for (size_t at = find_lowered(text, kWord); at != std::string_view::npos; at = find_lowered(text, kWord, at + 1)) {
    size_t next = at + kWord.size();
    auto blanks = [&] {
      while (next < text.size() && space_size(text, next) > 0) next += space_size(text, next);
    };
    blanks();
    if (next >= text.size() || text[next] != ':') continue;
    size_t colon = ++next;
    blanks();
    if (next == text.size()) {  // only white space follows: the last piece of it that is no newline is the capture
      while (next > colon && text[next - 1] == '\n') --next;
      if (next == colon) continue;
      next -= last_characters(text.substr(colon, next - colon), 1).size();
    }
    size_t end = std::min(text.find('\n', next), text.size());
    found = text.substr(next, end - next);
    at = end - 1;
  }
  return found;
}

Span place(std::string_view text, std::string_view part) {
  size_t begin = static_cast<size_t>(part.data() - text.data());
  return {begin, begin + part.size()};
}

Verdict judge_box(std::string_view gold, std::string_view whole, std::string_view window) {
  constexpr std::string_view kOpened = "\\boxed{";
  std::string_view tail = last_characters(window, kBoxWindow);
  size_t begin = tail.rfind(kOpened);
  int depth = 0;
  for (size_t at = begin; at < tail.size(); ++at) {
    if (tail[at] == '{') ++depth;
    if (tail[at] != '}' || --depth != 0) continue;
    std::string_view inside = tail.substr(begin + kOpened.size(), at - begin - kOpened.size());
    bool equal = inside == gold;
    return {equal ? Outcome::kCorrect : Outcome::kWrong, place(whole, inside), std::string(inside),
            equal ? "equal_box" : "box_differs"};
  }
  return {Outcome::kNoAnswer, {}, "", "no_answer_line_no_box"};
}

Verdict judge(std::string_view gold, const Answer& answer, bool box) {
  std::string_view window = fault("score.dapo_bytes")
                                ? answer.text.substr(answer.text.size() - std::min(kWindow, answer.text.size()))
                                : last_characters(answer.text, kWindow);
  std::string_view line = last_answer_line(window);
  if (line.empty()) {
    if (box) return judge_box(gold, answer.text, window);
    return {Outcome::kNoAnswer, {}, "", "no_answer_line"};
  }
  std::string normal = dapo_normal(line);
  bool equal = normal == dapo_normal(gold);
  return {equal ? Outcome::kCorrect : Outcome::kWrong, place(answer.text, line), std::move(normal),
          equal ? "equal" : "differs"};
}

}  // namespace

std::string dapo_normal(std::string_view answer) {
  std::string text(answer.substr(answer.rfind('=') + 1));
  for (const auto& [from, to] : kReplaced) replace_all(text, from, to);
  for (std::string_view gone : kRemoved) remove_all(text, gone);
  remove_all(text, kRemovedLast);
  text = in_dollars(text);
  for (std::string_view command : {"\\text{", "\\textbf{", "\\overline{"}) text = unwrapped(text, command, false);
  text = unwrapped(text, "\\boxed{", true);
  text = completed_roots(completed_fractions(text));
  remove_all(text, "$");
  std::string digits = text;
  remove_all(digits, ",");
  if (all_digits(digits)) text = digits;
  return std::string(trimmed(text));
}

Rule verl_math_dapo_rule(bool box) {
  return Rule({.name = box ? "verl-math-dapo" : "verl-math-dapo-old",
               .version = 1,
               .tables = fmt::format("verl {}, math_dapo\nremoved {}", box ? "0.9.1" : "of January 2026",
                                     fmt::join(kRemoved, " ")),
               .judge = [box](std::string_view gold, const Answer& answer) { return judge(gold, answer, box); },
               .check_gold = {}});
}

}  // namespace sf::score
