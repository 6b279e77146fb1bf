// SPDX-License-Identifier: Apache-2.0
// verl's prime_math: a chain of extractions, two string forms, then numbers. Where it asks a computer algebra system,
// the values of rule math decide; what they cannot decide is undecided. Its last resort, symbolic equality of whole
// answers, never comes about in the version reproduced and is left out.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <variant>

#include "base/json.h"
#include "score/hendrycks.h"
#include "score/math_equal.h"
#include "score/prime_text.h"
#include "score/public_rules.h"
#include "score/strings.h"

namespace sf::score {
namespace {

constexpr std::array<std::string_view, 3> kBefore = {"answer:", "answer is", "answers are"};
constexpr std::array<std::string_view, 4> kBehind = {"is answer", "is the answer", "are answers", "are the answers"};
constexpr std::array<std::string_view, 11> kVerbs = {"be ",  "is ",  "are ",  "=",   ": ",   "get ",
                                                     "be\n", "is\n", "are\n", ":\n", "get\n"};

std::optional<std::string_view> loose_box(std::string_view text) {
  size_t begin = text.rfind("\\boxed");
  if (begin == std::string_view::npos) begin = text.rfind("\\fbox");
  if (begin == std::string_view::npos) return std::nullopt;
  size_t open = std::string_view::npos;
  long depth = 0;
  for (size_t at = begin; at < text.size(); ++at) {
    if (text[at] == '{') {
      ++depth;
      open = std::min(open, at);
    } else if (text[at] == '}' && --depth == 0 && open != std::string_view::npos) {
      return trimmed(text.substr(open + 1, at - open - 1));
    }
  }
  return std::nullopt;
}

std::string_view extracted(std::string_view text) {
  for (std::string_view marker : kBefore)
    if (size_t at = rfind_lowered(text, marker); at != std::string_view::npos)
      text = trimmed(text.substr(at + marker.size()));
  for (std::string_view marker : kBehind)
    if (size_t at = rfind_lowered(text, marker); at != std::string_view::npos) text = trimmed(text.substr(0, at));
  if (auto box = loose_box(text); box && !box->empty()) text = *box;
  if (size_t at = text.rfind(". "); at != std::string_view::npos) text = trimmed(text.substr(0, at));
  for (std::string_view marker : kVerbs)
    if (size_t at = rfind_lowered(text, marker); at != std::string_view::npos)
      text = trimmed(text.substr(at + marker.size()));
  return text;
}

std::string first_normal(std::string_view answer) {
  answer = trimmed(answer);
  bool wrapped = answer.starts_with("\\text{") && answer.ends_with('}') && answer.size() > 7 &&
                 answer.find('\n') == std::string_view::npos;
  if (wrapped) answer = trimmed(answer.substr(6, answer.size() - 7));
  return old_normal(answer, false).value_or(std::string(answer));
}

std::vector<std::string> tuple_parts(const std::string& given) {
  std::string text = without_thousands(given);
  if (text.empty()) return {};
  constexpr std::string_view kBrackets = "()[]";
  bool bracketed = text.size() > 2 && kBrackets.find(text.front()) != std::string_view::npos &&
                   kBrackets.find(text.back()) != std::string_view::npos &&
                   text.find_first_of(kBrackets, 1) == text.size() - 1;
  if (!bracketed) return {text};
  std::vector<std::string> parts = split(std::string_view(text).substr(1, text.size() - 2), ",");
  for (std::string& part : parts) part = std::string(trimmed(part));
  return parts;
}

// -?digits, one character or none, "/", zeros, a digit of 1..9, digits, one character or none.
bool is_fraction(std::string_view text) {
  size_t at = text.starts_with('-') ? 1 : 0, begin = at;
  while (at < text.size() && is_digit(text[at])) ++at;
  if (at == begin) return false;
  if (at < text.size() && text[at] != '/') at += character_size(text, at);
  if (at >= text.size() || text[at] != '/') return false;
  size_t digits = ++at;
  while (at < text.size() && is_digit(text[at])) ++at;
  if (text.substr(digits, at - digits).find_first_not_of('0') == std::string_view::npos) return false;
  return at == text.size() || at + character_size(text, at) == text.size();
}

bool is_whole(const std::string& text) {
  auto value = python_float(without_thousands(text));
  return value && std::isfinite(*value) && std::abs(*value - std::nearbyint(*value)) <= 1e-7;
}

// Whether prime_math would hand "(a)-(b)" to its algebra system.
bool asks_algebra(const std::string& a, const std::string& b) {
  std::string text = "(" + a + ")-(" + b + ")";
  if (text.find("^{") != std::string::npos || text.find("^(") != std::string::npos) return false;
  for (size_t at = text.find('^'); at != std::string::npos; at = text.find('^', at + 1)) {
    size_t end = at + 1;
    while (end < text.size() && is_digit(text[end])) ++end;
    if (end > at + 2 || (end == at + 2 && end < text.size() && text[end] == '^')) return false;
  }
  remove_all(text, "sqrt");
  remove_all(text, "frac");
  std::string letters;
  for (char c : text)
    if (is_letter(c) && letters.find(c) == std::string::npos) letters += c;
  return letters.size() <= 2;
}

// What Python's own grammar refuses, whatever it may mean: a point that is no part of a number, equations, lists.
bool is_python(std::string_view text) {
  bool second = false;  // a number that has its point already
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '.' && second) return false;
    second = text[i] == '.' || (second && is_digit(text[i]));
    bool number = (i > 0 && is_digit(text[i - 1])) || (i + 1 < text.size() && is_digit(text[i + 1]));
    if ((text[i] == '.' && !number) || std::string_view("=:;$~&'{}\\").find(text[i]) != std::string_view::npos)
      return false;
  }
  return true;
}

MathVerdict by_algebra(const std::string& gold, const std::string& answer) {
  if (!asks_algebra(gold, answer) || !is_python(gold) || !is_python(answer)) return MathVerdict::kDifferent;
  auto left = parse_math(gold), right = parse_math(answer);
  return left && right ? same_expression(*left, *right) : MathVerdict::kDifferent;
}

MathVerdict graded(std::string_view answer, std::string_view gold) {
  if (first_normal(gold) == first_normal(answer)) return MathVerdict::kEqual;
  std::string wanted = prime_normal(gold), found = prime_normal(answer);
  if (wanted == found) return MathVerdict::kEqual;
  if (found.empty()) return MathVerdict::kDifferent;
  std::vector<std::string> left = tuple_parts(wanted), right = tuple_parts(found);
  bool other_brackets = left.size() > 1 && (wanted.front() != found.front() || wanted.back() != found.back());
  if (other_brackets || left.size() != right.size() || left.empty()) return MathVerdict::kDifferent;
  MathVerdict result = MathVerdict::kEqual;
  for (size_t i = 0; i < left.size(); ++i) {
    MathVerdict same = MathVerdict::kDifferent;
    if (is_fraction(left[i]) && is_fraction(right[i]))
      same = left[i] == right[i] ? MathVerdict::kEqual : MathVerdict::kDifferent;
    else if (is_whole(left[i]) == is_whole(right[i]))
      same = by_algebra(left[i], right[i]);
    if (same == MathVerdict::kDifferent) return same;
    if (same == MathVerdict::kUndecided) result = same;
  }
  return result;
}

struct Raised {};  // the grader's own code raises an error here: the answer counts as wrong

using Value = std::variant<std::string, double>;

std::string text_of(const Value& value) {
  return std::holds_alternative<double>(value) ? double_text(std::get<double>(value)) : std::get<std::string>(value);
}

bool is_percentage(std::string_view text) {
  size_t size = text.ends_with("\\%") ? 2 : text.ends_with('%') ? 1 : 0;
  text.remove_suffix(size);
  size_t point = text.find('.');
  return size > 0 && all_digits(text.substr(0, point)) &&
         (point == std::string_view::npos || all_digits(text.substr(point + 1)));
}

Value normal_value(const std::string& text, double pi) {
  if (text.size() > 1 && text[0] == '$' && is_digit(text[1])) return text.substr(1);
  if (is_percentage(text)) return text.substr(0, text.find_first_of("\\%"));
  if (size_t at = text.find('_'); at != std::string::npos) {
    auto value = python_float(text.substr(0, at));
    if (!value || !std::isfinite(*value)) throw Raised{};
    return std::trunc(*value);
  }
  if (text.find("\\pi") == std::string::npos) return text;
  std::string replaced;
  size_t begin = 0;
  for (size_t at = text.find("\\pi"); at != std::string::npos; at = text.find("\\pi", begin)) {
    replaced.append(text, begin, at - begin);
    replaced += (at > 0 && !replaced.empty() && is_digit(replaced.back()) ? "*" : "1*") + double_text(pi);
    begin = at + 3;
  }
  replaced.append(text, begin);
  if (auto value = python_arithmetic(replaced)) return *value;
  return replaced;
}

std::optional<double> digits_of(const Value& value) {
  std::string text = text_of(value);
  remove_all(text, text.find("{,}") != std::string::npos ? "{,}" : ",");
  return python_float(text);
}

bool close(double a, double b) {
  return a == b ||
         (std::isfinite(a) && std::isfinite(b) && std::abs(a - b) <= 1e-4 * std::max(std::abs(a), std::abs(b)));
}

std::string stripped_of(std::string text, std::string_view characters) {
  size_t begin = text.find_first_not_of(characters);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(characters) + 1 - begin);
}

constexpr int kMostNested = 20;

bool equal_values(const std::string& prediction_text, const std::string& reference_text, double pi, int depth);

bool equal_parts(std::string_view a, std::string_view b, bool strip, int depth) {
  std::vector<std::string> left = split(a, ","), right = split(b, ",");
  if (left.size() != right.size() || depth > kMostNested) return false;
  for (size_t i = 0; i < left.size(); ++i) {
    if (strip) left[i] = std::string(trimmed(left[i])), right[i] = std::string(trimmed(right[i]));
    if (!equal_values(left[i], right[i], std::numbers::pi, depth + 1)) return false;
  }
  return true;
}

// Brackets, braces and lists.
bool equal_forms(const std::string& prediction, const std::string& reference, int depth) {
  std::string a = prediction, b = reference;
  auto wrapped = [&](const char* open, const char* close) { return a.starts_with(open) && a.ends_with(close); };
  if ((wrapped("[", "]") && !reference.starts_with('(')) || (wrapped("(", ")") && !reference.starts_with('['))) {
    a = stripped_of(a, "[]()");
    b = stripped_of(b, "[]()");
  }
  for (std::string_view gone : {"{", "}", "(", ")"}) {
    remove_all(a, gone);
    remove_all(b, gone);
  }
  if (a == b) return true;
  auto opens = [](char c) { return c == '(' || c == '['; };
  auto closes = [](char c) { return c == ')' || c == ']'; };
  if (prediction.size() > 1 && reference.size() > 1 && opens(prediction.front()) && closes(prediction.back()) &&
      prediction.front() == reference.front() && prediction.back() == reference.back()) {
    std::string_view left(prediction), right(reference);
    if (equal_parts(left.substr(1, left.size() - 2), right.substr(1, right.size() - 2), false, depth)) return true;
  }
  bool lists = prediction.find(',') != std::string::npos && reference.find(',') != std::string::npos;
  return lists && split(prediction, ",").size() == split(reference, ",").size() &&
         equal_parts(prediction, reference, true, depth);
}

bool equal_values(const std::string& prediction_text, const std::string& reference_text, double pi, int depth) {
  Value prediction = normal_value(prediction_text, pi), reference = normal_value(reference_text, pi);
  if (auto* text = std::get_if<std::string>(&prediction); text && count_characters(*text) > 1000) {
    size_t end = 0;
    for (int i = 0; i < 1000; ++i) end += character_size(*text, end);
    text->resize(end);
  }
  auto *a = std::get_if<std::string>(&prediction), *b = std::get_if<std::string>(&reference);
  if (a && b) {
    if (lowered(trimmed(*a)) == lowered(trimmed(*b))) return true;
    std::string left = *a, right = *b;
    remove_all(left, " ");
    remove_all(right, " ");
    if (left == right) return true;
  }
  auto left = digits_of(prediction), right = digits_of(reference);
  if (left && right) return close(*right / 100, *left) || close(*right, *left) || close(*right * 100, *left);
  if (a && a->empty()) return false;
  return equal_forms(std::string(trimmed(text_of(prediction))), std::string(trimmed(text_of(reference))), depth);
}

bool equal_numbers(const std::string& answer, const std::string& gold) {
  try {
    if (answer.find("\\pi") == std::string::npos && gold.find("\\pi") == std::string::npos)
      return equal_values(answer, gold, std::numbers::pi, 0);
    bool exact = equal_values(answer, gold, std::numbers::pi, 0), rough = equal_values(answer, gold, 3.14, 0);
    return exact || rough;
  } catch (const Raised&) {
    return false;
  }
}

Verdict judge(std::string_view gold, const Answer& answer) {
  std::string_view found = extracted(answer.text);
  size_t begin = static_cast<size_t>(found.data() - answer.text.data());
  Span span = found.empty() ? Span{} : Span{begin, begin + found.size()};
  std::string normal = prime_normal(found);
  MathVerdict grade = graded(found, gold);
  if (grade == MathVerdict::kEqual) return {Outcome::kCorrect, span, std::move(normal), "equal"};
  if (equal_numbers(std::string(found), std::string(gold))) return {Outcome::kCorrect, span, std::move(normal), "near"};
  if (grade == MathVerdict::kUndecided) return {Outcome::kUndecided, span, std::move(normal), "needs_algebra"};
  if (found.empty()) return {Outcome::kNoAnswer, {}, "", "empty"};
  return {Outcome::kWrong, span, std::move(normal), "differs"};
}

}  // namespace

std::string prime_extracted(std::string_view response) {
  return std::string(extracted(response));
}

Rule verl_prime_math_rule() {
  return Rule(
      {.name = "verl-prime-math", .version = 2, .tables = "verl 0.9.1, prime_math", .judge = judge, .check_gold = {}});
}

}  // namespace sf::score
