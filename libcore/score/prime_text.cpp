// SPDX-License-Identifier: Apache-2.0
#include "score/prime_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "score/strings.h"

namespace sf::score {
namespace {

constexpr size_t kMostLatex = 8192;
constexpr int kMostDepth = 60;

constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kSymbols = {{{"pi", "pi"},
                                                                                     {"infty", "inf"},
                                                                                     {"cup", "U"},
                                                                                     {"cdot", "*"},
                                                                                     {"times", "*"},
                                                                                     {"circ", "\xE2\x88\x98"},
                                                                                     {"pm", "\xC2\xB1"},
                                                                                     {"le", "\xE2\x89\xA4"},
                                                                                     {"leq", "\xE2\x89\xA4"},
                                                                                     {"ge", "\xE2\x89\xA5"},
                                                                                     {"geq", "\xE2\x89\xA5"},
                                                                                     {"approx", "\xE2\x89\x88"},
                                                                                     {"ldots", "\xE2\x80\xA6"},
                                                                                     {"dots", "\xE2\x80\xA6"},
                                                                                     {"quad", "  "},
                                                                                     {"qquad", "    "}}};
constexpr std::array<std::string_view, 12> kNames = {"sin", "cos", "tan", "log", "ln",  "exp",
                                                     "max", "min", "lim", "gcd", "sec", "cot"};

class Plain {
 public:
  explicit Plain(std::string_view text) : text_(text) {}
  std::string run(int depth) {
    depth_ = depth;
    std::string result;
    while (at_ < text_.size()) piece(result);
    return result;
  }

 private:
  void piece(std::string& into) {
    char c = text_[at_];
    if (c == '\\') return command(into);
    ++at_;
    if (c == '{' || c == '}' || c == '$') return;
    if (c == '~')
      into += "\xC2\xA0";
    else
      into += c;
  }

  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }

  std::string argument() {
    skip_blanks();
    if (at_ >= text_.size()) return "";
    if (text_[at_] == '{') {
      size_t end = at_;
      int open = 0;
      for (; end < text_.size(); ++end) {
        if (text_[end] == '\\')
          ++end;
        else if (text_[end] == '{')
          ++open;
        else if (text_[end] == '}' && --open == 0)
          break;
      }
      end = std::min(end, text_.size());
      std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
      at_ = std::min(end + 1, text_.size());
      return depth_ < kMostDepth ? Plain(inside).run(depth_ + 1) : "";
    }
    std::string one;
    size_t before = at_;
    if (text_[at_] == '\\' && depth_ < kMostDepth) {
      ++depth_;
      piece(one);
      --depth_;
      return one;
    }
    at_ = before + character_size(text_, before);
    return std::string(text_.substr(before, at_ - before));
  }

  void command(std::string& into) {
    ++at_;
    if (at_ >= text_.size()) return;
    char c = text_[at_];
    if (!is_letter(c)) {
      at_ += character_size(text_, at_);
      if (c == ',' || c == ';' || c == ':' || c == ' ')
        into += ' ';
      else if (c == '\\')
        into += '\n';
      else if (c == '{' || c == '}' || c == '%' || c == '$' || c == '&' || c == '#' || c == '_')
        into += c;
      return;
    }
    size_t begin = at_;
    while (at_ < text_.size() && is_letter(text_[at_])) ++at_;
    std::string_view name = text_.substr(begin, at_ - begin);
    skip_blanks();
    if (name == "frac" || name == "dfrac" || name == "tfrac") {
      std::string above = argument();
      into += above + "/" + argument();
      return;
    }
    if (name == "sqrt") {
      if (at_ < text_.size() && text_[at_] == '[') at_ = std::min(text_.find(']', at_), text_.size() - 1) + 1;
      into += "sqrt(" + argument() + ")";
      return;
    }
    for (const auto& [known, text] : kSymbols)
      if (known == name) into += text;
    if (std::find(kNames.begin(), kNames.end(), name) != kNames.end()) into += name;
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

constexpr std::array<std::string_view, 17> kUnits = {"degree", "cm",   "centimeter", "meter", "mile",  "second",
                                                     "minute", "hour", "day",        "week",  "month", "year",
                                                     "foot",   "feet", "inch",       "yard",  "liter"};

void remove_unit(std::string& text, std::string_view unit) {
  std::string result;
  size_t begin = 0;
  for (size_t at = text.find(unit); at != std::string::npos; at = text.find(unit, begin)) {
    result.append(text, begin, at - begin);
    size_t end = at + unit.size();
    if (text.compare(end, 2, "es") == 0) end += 2;
    if (end < text.size() && text[end] == 's') ++end;
    while (end < text.size() && text[end] == ' ') ++end;
    if (end + 1 < text.size() && text[end] == '^' && is_digit(text[end + 1]))
      for (++end; end < text.size() && is_digit(text[end]);) ++end;
    begin = end;
  }
  text = result.append(text, begin);
}

// Each match of `head` (one character), blanks and `tail`: blanks go, or "+" takes their place between digits.
std::string mixed_numbers(const std::string& text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    while (is_digit(text[at]) && end < text.size() && text[end] == ' ') ++end;
    if (is_digit(text[at]) && end > at + 1 && end < text.size() && is_digit(text[end])) {
      result += text[at];
      result += '+';
      result += text[end];
      at = end + 1;
    } else {
      result += text[at++];
    }
  }
  return result;
}

void remove_after(std::string& text, std::string_view head, bool keep_head) {  // head and the blanks behind it
  std::string result;
  size_t begin = 0;
  for (size_t at = text.find(head); at != std::string::npos; at = text.find(head, begin)) {
    result.append(text, begin, at - begin);
    if (keep_head) result += head;
    begin = at + head.size();
    while (begin < text.size() && text[begin] == ' ') ++begin;
  }
  text = result.append(text, begin);
}

// "^ *\circ"
void remove_circles(std::string& text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    while (text[at] == '^' && end < text.size() && text[end] == ' ') ++end;
    if (text[at] == '^' && text.compare(end, 5, "\\circ") == 0) {
      at = end + 5;
    } else {
      result.append(text, at, end - at);
      at = end;
    }
  }
  text = std::move(result);
}

std::optional<std::string> whole_text(std::string_view text) {
  std::optional<double> value = python_float(text);
  if (!value || !std::isfinite(*value) || std::abs(*value - std::nearbyint(*value)) > 1e-7) return std::nullopt;
  double rounded = std::nearbyint(*value);
  return fmt::format("{:.0f}", rounded == 0 ? 0.0 : rounded);
}

class Arithmetic {
 public:
  explicit Arithmetic(std::string_view text) : text_(text) {}
  std::optional<double> run() {
    double value = sum();
    skip();
    return at_ == text_.size() && good_ ? std::optional(value) : std::nullopt;
  }

 private:
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view sign) {
    skip();
    if (text_.compare(at_, sign.size(), sign) != 0) return false;
    at_ += sign.size();
    return true;
  }
  double refuse() {
    good_ = false;
    at_ = text_.size();
    return 0;
  }
  double sum() {
    double value = term();
    while (good_) {
      if (take("+"))
        value += term();
      else if (take("-"))
        value -= term();
      else
        return value;
    }
    return value;
  }
  double term() {
    double value = factor();
    while (good_) {
      skip();
      if (text_.compare(at_, 2, "**") == 0) return refuse();  // factor() takes it where it may stand
      if (take("*")) {
        value *= factor();
      } else if (take("/")) {
        double below = factor();
        if (below == 0) return refuse();
        value /= below;
      } else {
        return value;
      }
    }
    return value;
  }
  double factor() {
    if (++depth_ > 100) return refuse();
    double value = take("-") ? -factor() : take("+") ? factor() : raised();
    --depth_;
    return value;
  }
  double raised() {
    double base = atom();
    return take("**") ? std::pow(base, factor()) : base;
  }
  double atom() {
    if (take("(")) {
      double value = sum();
      return take(")") ? value : refuse();
    }
    skip();
    size_t begin = at_;
    while (at_ < text_.size() && (is_digit(text_[at_]) || text_[at_] == '.')) ++at_;
    std::string_view number = text_.substr(begin, at_ - begin);
    bool octal = number.size() > 1 && number[0] == '0' && all_digits(number) &&
                 number.find_first_not_of('0') != std::string_view::npos;
    auto value = octal ? std::nullopt : python_float(number);
    return value ? *value : refuse();
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  bool good_ = true;
};

}  // namespace

std::string plain_from_latex(std::string_view latex) {
  return Plain(latex.substr(0, kMostLatex)).run(0);
}

std::optional<double> python_float(std::string_view given) {
  std::string text(trimmed(given));
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '_' && (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])))
      return std::nullopt;
  remove_all(text, "_");
  bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.erase(0, 1);
  std::string low = lowered(text);
  if (low == "inf" || low == "infinity") return negative ? -HUGE_VAL : HUGE_VAL;
  if (low == "nan") return std::nan("");
  if (text.empty() || !(is_digit(text[0]) || (text[0] == '.' && text.size() > 1 && is_digit(text[1]))))
    return std::nullopt;
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) value = low.find("e-") != std::string::npos ? 0 : HUGE_VAL;
  return negative ? -value : value;
}

std::string without_thousands(std::string text) {
  for (bool changed = true; changed;) {
    changed = false;
    std::string result;
    for (size_t at = 0; at < text.size();) {
      bool here = at + 4 < text.size() && is_digit(text[at]) && text[at + 1] == ',' &&
                  all_digits(std::string_view(text).substr(at + 2, 3)) &&
                  (at + 5 == text.size() || !is_digit(text[at + 5]));
      if (!here) {
        result += text[at++];
        continue;
      }
      result += text[at];
      result.append(text, at + 2, 4);  // the character after the digits is part of the match
      at += 6;
      changed = true;
    }
    text = std::move(result);
  }
  return text;
}

std::string prime_normal(std::string_view expression) {
  std::string text(expression);
  bool wrapped =
      text.starts_with("\\text{") && text.ends_with('}') && text.size() > 7 && text.find('\n') == std::string::npos;
  if (wrapped) text = text.substr(6, text.size() - 7);
  replace_all(text, "\\%", "%");
  replace_all(text, "\\$", "$");
  remove_all(text, "$");
  remove_all(text, "%");
  replace_all(text, " or ", " , ");
  replace_all(text, " and ", " , ");
  replace_all(text, "million", "*10^6");
  replace_all(text, "billion", "*10^9");
  replace_all(text, "trillion", "*10^12");
  for (std::string_view unit : kUnits) remove_unit(text, unit);
  remove_circles(text);
  if (text.size() > 1 && text.front() == '{' && text.back() == '}') text = text.substr(1, text.size() - 2);
  remove_after(text, ",\\!", false);
  if (auto whole = whole_text(text)) text = *whole;
  if (text.find('\\') != std::string::npos && text.size() <= kMostLatex) {
    replace_all(text, "\\tfrac", "\\frac");
    replace_all(text, "\\dfrac", "\\frac");
    replace_all(text, "\\frac", " \\frac");
    text = std::string(trimmed(plain_from_latex(text)));
  }
  remove_after(text, "-", true);
  text = lowered(mixed_numbers(text));
  if (auto whole = whole_text(without_thousands(text))) {
    std::string digits = text;
    remove_all(digits, ",");
    if (auto value = python_float(digits)) text = fmt::format("{:.0f}", std::trunc(*value) + 0.0);
  }
  return text;
}

std::optional<double> python_arithmetic(std::string_view text) {
  if (text.size() > 1000) return std::nullopt;
  return Arithmetic(text).run();
}

}  // namespace sf::score
