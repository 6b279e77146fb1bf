// SPDX-License-Identifier: Apache-2.0
#include "score/math_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "score/strings.h"

namespace sf::score {
namespace {

using Kind = MathToken::Kind;
using Replacement = std::pair<std::string_view, std::string_view>;

// Characters beyond ASCII and what they say in ASCII notation.
constexpr std::array<Replacement, 38> kCharacters = {{{"\xE2\x88\x92", "-"},       {"\xE2\x80\x93", "-"},
                                                      {"\xC3\x97", "\\times "},    {"\xC2\xB7", "\\cdot "},
                                                      {"\xE2\x8B\x85", "\\cdot "}, {"\xC3\xB7", "\\div "},
                                                      {"\xE2\x89\xA4", "\\le "},   {"\xE2\x89\xA5", "\\ge "},
                                                      {"\xE2\x89\xA0", "\\ne "},   {"\xE2\x88\x9A", "\\sqrt "},
                                                      {"\xCF\x80", "\\pi "},       {"\xE2\x88\x9E", "\\infty "},
                                                      {"\xE2\x88\xAA", "\\cup "},  {"\xE2\x88\xA9", "\\cap "},
                                                      {"\xC2\xB0", "\\degree "},   {"\xE2\x88\x88", "\\in "},
                                                      {"\xC2\xB1", "\\pm "},       {"\xE2\x89\x88", "\\approx "},
                                                      {"\xC2\xB2", "^2"},          {"\xC2\xB3", "^3"},
                                                      {"\xC2\xBD", "\\frac12"},    {"\xE2\x88\x85", "\\emptyset "},
                                                      {"\xCE\xB8", "\\theta "},    {"\xCE\xB1", "\\alpha "},
                                                      {"\xCE\xB2", "\\beta "},     {"\xEF\xBC\x90", "0"},
                                                      {"\xEF\xBC\x91", "1"},       {"\xEF\xBC\x92", "2"},
                                                      {"\xEF\xBC\x93", "3"},       {"\xEF\xBC\x94", "4"},
                                                      {"\xEF\xBC\x95", "5"},       {"\xEF\xBC\x96", "6"},
                                                      {"\xEF\xBC\x97", "7"},       {"\xEF\xBC\x98", "8"},
                                                      {"\xEF\xBC\x99", "9"},       {"\xEF\xBC\x8C", ","},
                                                      {"\xC2\xA0", " "},           {"\xE2\x80\xAF", " "}}};
constexpr std::array<std::string_view, 22> kLayout = {
    "left",         "right",     "big",         "Big",   "bigl",   "bigr",     "Bigl", "Bigr",
    "displaystyle", "textstyle", "quad",        "qquad", "limits", "bigg",     "Bigg", "degree",
    "approx",       "phantom",   "scriptstyle", "dots",  "ldots",  "mathstrut"};
constexpr std::array<std::string_view, 11> kTextCommands = {
    "text", "textbf", "textit", "mathrm", "mathbf", "mbox", "textrm", "mathit", "mathsf", "operatorname", "textsf"};
constexpr std::array<std::string_view, 30> kFunctions = {
    "sin",      "cos",  "tan", "cot", "sec", "csc",  "arcsin", "arccos", "arctan", "sinh",
    "cosh",     "tanh", "log", "ln",  "lg",  "exp",  "sqrt",   "pi",     "inf",    "infty",
    "infinity", "gcd",  "lcm", "min", "max", "frac", "cbrt",   "abs",    "binom",  "theta"};
constexpr std::array<std::string_view, 58> kUnits = {
    "degrees", "degree", "units",   "unit",   "cm",       "mm",      "km",      "meters",   "meter",  "metres",
    "feet",    "foot",   "ft",      "inches", "inch",     "yards",   "miles",   "mile",     "mph",    "hours",
    "hour",    "hr",     "minutes", "minute", "min",      "seconds", "second",  "sec",      "days",   "day",
    "weeks",   "months", "years",   "year",   "dollars",  "dollar",  "cents",   "cent",     "pounds", "kg",
    "grams",   "gm",     "liters",  "litres", "ways",     "points",  "people",  "students", "square", "squared",
    "cubic",   "per",    "percent", "sq",     "integers", "digits",  "radians", "cubed"};

// Measures, by one name each; other units count things and say no more than their number.
constexpr std::array<std::pair<std::string_view, std::string_view>, 75> kMeasures = {{{"cm", "cm"},
                                                                                      {"centimeter", "cm"},
                                                                                      {"centimeters", "cm"},
                                                                                      {"centimetre", "cm"},
                                                                                      {"centimetres", "cm"},
                                                                                      {"mm", "mm"},
                                                                                      {"millimeter", "mm"},
                                                                                      {"millimeters", "mm"},
                                                                                      {"km", "km"},
                                                                                      {"kilometer", "km"},
                                                                                      {"kilometers", "km"},
                                                                                      {"kilometre", "km"},
                                                                                      {"kilometres", "km"},
                                                                                      {"m", "m"},
                                                                                      {"meter", "m"},
                                                                                      {"meters", "m"},
                                                                                      {"metre", "m"},
                                                                                      {"metres", "m"},
                                                                                      {"ft", "ft"},
                                                                                      {"foot", "ft"},
                                                                                      {"feet", "ft"},
                                                                                      {"in", "in"},
                                                                                      {"inch", "in"},
                                                                                      {"inches", "in"},
                                                                                      {"yd", "yd"},
                                                                                      {"yard", "yd"},
                                                                                      {"yards", "yd"},
                                                                                      {"mi", "mi"},
                                                                                      {"mile", "mi"},
                                                                                      {"miles", "mi"},
                                                                                      {"h", "h"},
                                                                                      {"hr", "h"},
                                                                                      {"hrs", "h"},
                                                                                      {"hour", "h"},
                                                                                      {"hours", "h"},
                                                                                      {"min", "min"},
                                                                                      {"minute", "min"},
                                                                                      {"minutes", "min"},
                                                                                      {"s", "s"},
                                                                                      {"sec", "s"},
                                                                                      {"second", "s"},
                                                                                      {"seconds", "s"},
                                                                                      {"day", "day"},
                                                                                      {"days", "day"},
                                                                                      {"week", "week"},
                                                                                      {"weeks", "week"},
                                                                                      {"month", "month"},
                                                                                      {"months", "month"},
                                                                                      {"year", "year"},
                                                                                      {"years", "year"},
                                                                                      {"dollar", "dollar"},
                                                                                      {"dollars", "dollar"},
                                                                                      {"cent", "cent"},
                                                                                      {"cents", "cent"},
                                                                                      {"lb", "lb"},
                                                                                      {"lbs", "lb"},
                                                                                      {"pound", "lb"},
                                                                                      {"pounds", "lb"},
                                                                                      {"kg", "kg"},
                                                                                      {"kilogram", "kg"},
                                                                                      {"kilograms", "kg"},
                                                                                      {"g", "g"},
                                                                                      {"gm", "g"},
                                                                                      {"gram", "g"},
                                                                                      {"grams", "g"},
                                                                                      {"l", "l"},
                                                                                      {"liter", "l"},
                                                                                      {"liters", "l"},
                                                                                      {"litre", "l"},
                                                                                      {"litres", "l"},
                                                                                      {"degree", "degree"},
                                                                                      {"degrees", "degree"},
                                                                                      {"radian", "radian"},
                                                                                      {"radians", "radian"},
                                                                                      {"mph", "mi/h"}}};

template <size_t n>
bool among(const std::array<std::string_view, n>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

class Lexer {
 public:
  explicit Lexer(std::string text) : text_(std::move(text)) {}

  std::vector<MathToken> run() {
    while (at_ < text_.size()) step();
    tokens_.push_back({Kind::kEnd, ""});
    return std::move(tokens_);
  }

 private:
  void push(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text)}); }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void step() {
    char c = peek();
    if (is_digit(c) || (c == '.' && is_digit(peek(1)))) return number();
    if (is_letter(c)) return word();
    if (c == '\\') return command();
    size_t begin = at_;
    at_ += character_size(text_, at_);
    if (std::string_view("+-*/^_()[]{}<>=,;!|&%'").find(c) != std::string_view::npos)
      push(Kind::kSign, std::string(1, c));
    else if (c != ' ' && c != '\t' && c != '\n' && c != '\r' && c != '$' && c != '~' && c != '.' && c != ':')
      push(Kind::kWord, text_.substr(begin, at_ - begin));
  }

  bool three_digits(size_t at) const {
    return at + 3 <= text_.size() && all_digits(std::string_view(text_).substr(at, 3)) &&
           !(at + 3 < text_.size() && is_digit(text_[at + 3]));
  }

  void number() {
    size_t begin = at_;
    std::string digits;
    while (is_digit(peek())) digits += text_[at_++];
    for (bool more = at_ - begin <= 3 && at_ > begin; more;) {
      more = false;
      for (std::string_view separator :
           {std::string_view(","), std::string_view("{,}"), std::string_view("\\,"), std::string_view(",\\!")}) {
        if (text_.compare(at_, separator.size(), separator) != 0 || !three_digits(at_ + separator.size())) continue;
        digits += text_.substr(at_ + separator.size(), 3);
        at_ += separator.size() + 3;
        more = true;
        break;
      }
    }
    if (peek() == '.' && (is_digit(peek(1)) || text_.compare(at_ + 1, 9, "\\overline") == 0)) {
      digits += text_[at_++];
      while (is_digit(peek())) digits += text_[at_++];
    }
    push(Kind::kNumber, digits);
  }

  void sort_word(const std::string& word, bool bare) {
    std::string low = lowered(word);
    if (low == "or" || low == "and") return push(Kind::kSign, ",");
    if (low == "percent") return push(Kind::kSign, "%");
    bool after_value = !tokens_.empty();
    if (after_value && among(kUnits, low)) return push(Kind::kUnit, low);
    if (bare && among(kFunctions, low)) return push(Kind::kCommand, low);
    if (word.size() == 1 && is_letter(word[0])) return push(bare ? Kind::kLetter : Kind::kWord, word);
    if (bare && word.size() == 2) {
      for (char c : word) push(Kind::kLetter, std::string(1, c));
      return;
    }
    push(Kind::kWord, word);
  }

  void word() {
    size_t begin = at_;
    while (is_letter(peek())) ++at_;
    sort_word(text_.substr(begin, at_ - begin), true);
  }

  // The {...} at the cursor, or "".
  std::string group() {
    size_t from = at_;
    while (peek() == ' ') ++at_;
    if (peek() != '{') {
      at_ = from;
      return "";
    }
    int depth = 0;
    for (size_t end = at_; end < text_.size(); ++end) {
      if (text_[end] == '\\')
        ++end;
      else if (text_[end] == '{')
        ++depth;
      else if (text_[end] == '}' && --depth == 0) {
        std::string inside = text_.substr(at_ + 1, end - at_ - 1);
        at_ = end + 1;
        return inside;
      }
    }
    at_ = text_.size();
    return "";
  }

  // \text{...}: numbers and notation are read as such, words are words.
  void text_group() {
    std::string inside = std::string(trimmed_ascii(group()));
    if (inside.empty()) return;
    auto plain = [](char c) {
      return is_letter(c) || is_digit(c) || std::string_view(" .,/^").find(c) != std::string_view::npos;
    };
    bool words = is_letter(inside[0]) && std::all_of(inside.begin(), inside.end(), plain);
    if (!words && depth_ < 4) {
      Lexer inner(inside);
      inner.depth_ = depth_ + 1;
      std::vector<MathToken> tokens = inner.run();
      tokens.pop_back();
      tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
      return;
    }
    if (inside.find_first_of(" /") == std::string::npos) {
      while (!inside.empty() && inside.back() == '.') inside.pop_back();
      return sort_word(inside, false);
    }
    push(tokens_.empty() ? Kind::kWord : Kind::kUnit, inside);
  }

  void command() {
    ++at_;
    char c = peek();
    if (!is_letter(c)) {
      at_ += at_ < text_.size() ? character_size(text_, at_) : 0;
      if (c == '\\') return push(Kind::kRow, "");
      if (c == '{' || c == '}') return push(Kind::kCommand, std::string(1, c));
      if (c == '%') return push(Kind::kSign, "%");
      if (c == '|') return push(Kind::kSign, "|");
      return;  // \, \; \! \: \$ "\ " \( \) \[ \]
    }
    size_t begin = at_;
    while (is_letter(peek())) ++at_;
    std::string name = text_.substr(begin, at_ - begin);
    if (among(kTextCommands, name)) return text_group();
    if (among(kLayout, name)) return;
    if (name == "circ") return drop_degree();
    if (name == "begin" || name == "end") return push(Kind::kCommand, name + ":" + group());
    if (name == "mathbb" || name == "mathcal") {
      std::string inside = group();
      return push(Kind::kCommand, "set:" + (inside.empty() ? std::string(1, peek() ? text_[at_++] : ' ') : inside));
    }
    push(Kind::kCommand, name);
  }

  // ^\circ and ^{\circ} say degrees.
  void drop_degree() {
    auto ends_with = [&](std::string_view text) {
      return !tokens_.empty() && tokens_.back().kind == Kind::kSign && tokens_.back().text == text;
    };
    bool braced = ends_with("{");
    if (braced) tokens_.pop_back();
    if (ends_with("^")) tokens_.pop_back();
    if (braced && peek() == '}') ++at_;
  }

  std::string text_;
  size_t at_ = 0;
  int depth_ = 0;
  std::vector<MathToken> tokens_;
};

}  // namespace

std::vector<MathToken> lex_math(std::string_view text) {
  std::string ascii(text);
  if (std::any_of(ascii.begin(), ascii.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }))
    for (const auto& [from, to] : kCharacters) replace_all(ascii, from, to);
  return Lexer(std::move(ascii)).run();
}

std::string unit_of_words(std::string_view words) {
  std::string unit, raise;
  bool below = false;
  std::string text(words);
  replace_all(text, "/", " / ");
  replace_all(text, "^", " ^");
  for (const std::string& piece : split(text, " ")) {
    const std::string word = lowered(piece.ends_with('.') ? piece.substr(0, piece.size() - 1) : piece);
    const auto* known = std::ranges::find(kMeasures, word, &std::pair<std::string_view, std::string_view>::first);
    if (word.empty()) continue;
    if (word == "/" || word == "per") {
      below = true;
    } else if (word == "square" || word == "sq") {
      raise = "^2";
    } else if (word == "cubic") {
      raise = "^3";
    } else if (word == "squared" || word == "cubed" || word[0] == '^') {
      if (!unit.empty()) unit += word == "squared" ? "^2" : word == "cubed" ? "^3" : word;
    } else if (known == kMeasures.end()) {
      return "";
    } else {
      unit += (below ? "/" : unit.empty() ? "" : " ") + std::string(known->second) + std::exchange(raise, "");
      below = false;
    }
  }
  return unit;
}

std::string math_lexer_tables() {
  std::string text;
  for (const auto& [from, to] : kCharacters) text += fmt::format("character {} {}\n", from, to);
  for (const auto& [from, to] : kMeasures) text += fmt::format("measure {} {}\n", from, to);
  return text + fmt::format("layout {}\ntext {}\nfunctions {}\nunits {}\n", fmt::join(kLayout, " "),
                            fmt::join(kTextCommands, " "), fmt::join(kFunctions, " "), fmt::join(kUnits, " "));
}

}  // namespace sf::score
