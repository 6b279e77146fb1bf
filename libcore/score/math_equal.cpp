// SPDX-License-Identifier: Apache-2.0
#include "score/math_equal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/fault.h"
#include "score/math_value.h"
#include "score/strings.h"

namespace sf::score {
namespace {

using Node = MathNode;
using enum MathVerdict;

constexpr double kRelative = 1e-9;
constexpr double kDecimal = 5e-7;
constexpr int kPoints = 4;             // with positive symbols
constexpr int kSignedPoints = 16;      // and with others behind them
constexpr size_t kMostPairs = 10'000;  // comparisons of two sets

MathVerdict equal(const Node& a, const Node& b);

bool is_scalar(const Node& node) {
  return node.kind <= Node::kNumber || node.kind == Node::kSymbol ||
         (node.kind >= Node::kAdd && node.kind <= Node::kPercent);
}

MathVerdict verdict(bool same) {
  return same ? kEqual : kDifferent;
}

bool close(std::complex<double> a, std::complex<double> b, double absolute) {
  return std::abs(a - b) <= std::max(absolute, kRelative * std::max(std::abs(a), std::abs(b)));
}

// `decimal`: how much two values may differ where a decimal point occurs.
MathVerdict equal_values(const Node& a, const Node& b, double decimal = kDecimal) {
  auto left = residues_of(a), right = residues_of(b);
  if (left && right && *left == *right) return kEqual;
  bool rounded = has_decimal(a) != has_decimal(b) || (has_decimal(a) && has_decimal(b));
  if (left && right && !rounded) return kDifferent;
  double absolute = rounded ? decimal : 1e-12;
  std::set<std::string> symbols;
  collect_symbols(a, symbols);
  collect_symbols(b, symbols);
  for (int point = 0; point < (symbols.empty() ? 1 : kPoints); ++point) {
    auto x = number_of(a, point), y = number_of(b, point);
    if (!x || !y) return !x && !y ? kUndecided : kDifferent;
    if (!close(*x, *y, absolute)) return kDifferent;
  }
  for (int point = kPoints; point < kSignedPoints && !symbols.empty(); ++point) {
    auto x = number_of(a, point), y = number_of(b, point);
    if (x && y && !close(*x, *y, absolute)) return kDifferent;
  }
  return kEqual;
}

std::string letters(const std::string& text) {
  std::string result;
  for (char c : text)
    if (c != ' ' && c != '.' && c != '(' && c != ')') result += lower(c);
  return result;
}

bool names_something(const Node& node) {
  return node.kind == Node::kSymbol || node.kind == Node::kText ||
         (node.kind == Node::kFunction && node.text.ends_with("()")) ||          // f(2)
         (node.kind == Node::kMultiply && node.items[0].kind == Node::kSymbol);  // P(x)
}

// What a relation speaks of: x of "x = 5" and of "5 < x".
const Node* subject(const Node& node) {
  if (node.kind != Node::kRelation || node.items.size() != 2) return nullptr;
  for (const Node& item : node.items)
    if (names_something(item)) return &item;
  return nullptr;
}

// Whether relations speak of several things, so that each value belongs to its own.
bool several_subjects(const std::vector<Node>& items) {
  const Node* first = nullptr;
  for (const Node& item : items) {
    const Node* one = subject(item);
    if (one && first && equal(*first, *one) != kEqual) return true;
    if (one && !first) first = one;
  }
  return false;
}

MathVerdict equal_of_one_subject(const Node& a, const Node& b) {
  const Node *left = subject(a), *right = subject(b);
  return left && right && equal(*left, *right) != kEqual ? kDifferent : equal(a, b);
}

// Each of `a` has its own equal in `b`.
MathVerdict equal_sets(const std::vector<Node>& a, const std::vector<Node>& b) {
  if (a.size() != b.size() || a.size() * b.size() > kMostPairs) return kDifferent;
  std::vector<bool> used(b.size(), false);
  const bool own = several_subjects(a) || several_subjects(b);
  bool undecided = false;
  for (const Node& item : a) {
    bool found = false;
    for (size_t i = 0; i < b.size() && !found; ++i) {
      if (used[i]) continue;
      MathVerdict same = own ? equal_of_one_subject(item, b[i]) : equal(item, b[i]);
      undecided = undecided || same == kUndecided;
      if (same == kEqual) found = used[i] = true;
    }
    if (!found) return undecided ? kUndecided : kDifferent;
  }
  return kEqual;
}

MathVerdict equal_in_order(const std::vector<Node>& a, const std::vector<Node>& b) {
  if (a.size() != b.size()) return kDifferent;
  MathVerdict result = kEqual;
  for (size_t i = 0; i < a.size(); ++i) {
    MathVerdict same = equal(a[i], b[i]);
    if (same == kDifferent) return kDifferent;
    if (same == kUndecided) result = kUndecided;
  }
  return result;
}

Node made(Node::Kind kind, std::vector<Node> items, std::string text = "") {
  return {kind, std::move(text), std::move(items), ""};
}

bool has_plus_minus(const Node& node) {
  return node.kind == Node::kPlusMinus || std::any_of(node.items.begin(), node.items.end(), has_plus_minus);
}

// The expression with every plus-minus read as plus, or as minus.
Node one_sign(const Node& node, bool plus) {
  Node copy = node;
  copy.items.clear();
  for (const Node& item : node.items) copy.items.push_back(one_sign(item, plus));
  if (copy.kind != Node::kPlusMinus) return copy;
  if (!plus) copy.items.back() = made(Node::kNegate, {copy.items.back()});
  return made(Node::kAdd, std::move(copy.items));
}

// x > 5, 5 < x, 1 <= x < 3 as intervals of the one symbol they speak of; other relations as they are.
Node as_interval(const Node& node) {
  auto strict = [](char c) { return c == '<' || c == '>'; };
  if (std::any_of(node.text.begin(), node.text.end(), [](char c) { return c == '=' || c == '!' || c == 'i'; }))
    return node;
  Node infinite = made(Node::kInfinity, {}), minus = made(Node::kNegate, {infinite});
  if (node.items.size() == 2) {
    bool left = node.items[0].kind == Node::kSymbol, right = node.items[1].kind == Node::kSymbol;
    if (left == right) return node;
    const Node& bound = node.items[left ? 1 : 0];
    bool above = (node.text[0] == '>' || node.text[0] == 'g') == left;
    std::string bracket(1, strict(node.text[0]) ? (above ? '(' : ')') : (above ? '[' : ']'));
    if (above) return made(Node::kTuple, {bound, infinite}, bracket + ")");
    return made(Node::kTuple, {minus, bound}, "(" + bracket);
  }
  if (node.items.size() != 3 || node.items[1].kind != Node::kSymbol) return node;
  bool up = (node.text[0] == '<' || node.text[0] == 'l') && (node.text[1] == '<' || node.text[1] == 'l');
  bool down = (node.text[0] == '>' || node.text[0] == 'g') && (node.text[1] == '>' || node.text[1] == 'g');
  if (!up && !down) return node;
  char low = node.text[up ? 0 : 1], high = node.text[up ? 1 : 0];
  std::string brackets = {strict(low) ? '(' : '[', strict(high) ? ')' : ']'};
  return made(Node::kTuple, {node.items[up ? 0 : 2], node.items[up ? 2 : 0]}, brackets);
}

// What an answer comes to: "x = 5" and "1 + 4 = 5" are 5, "x in S" is S, one-element sets and lists are their element.
Node essence(Node node) {
  while (true) {
    if (node.kind == Node::kRelation) {
      if (node.text == "i" ||
          (node.text.find_first_not_of('=') == std::string::npos &&
           (node.items.size() > 2 || names_something(node.items[0]) || fraction_of(node.items[0])))) {
        Node last = std::move(node.items.back());
        node = std::move(last);
        continue;
      }
      return as_interval(node);
    }
    if ((node.kind == Node::kSet || node.kind == Node::kList) && node.items.size() == 1) {
      Node only = std::move(node.items[0]);
      node = std::move(only);
      continue;
    }
    if (is_scalar(node) && has_plus_minus(node)) return made(Node::kSet, {one_sign(node, true), one_sign(node, false)});
    if (node.kind == Node::kPlusMinus) return made(Node::kSet, {one_sign(node, true), one_sign(node, false)});
    return node;
  }
}

// Two equations or inequalities: the same up to a constant factor (positive for inequalities).
MathVerdict equal_relations(const Node& a, const Node& b) {
  if (a.items.size() != 2 || b.items.size() != 2) return equal_in_order(a.items, b.items);
  auto flipped = [](char c) { return c == '<' ? '>' : c == '>' ? '<' : c == 'l' ? 'g' : c == 'g' ? 'l' : c; };
  bool same = a.text == b.text, turned = b.text[0] == flipped(a.text[0]);
  if (!same && !turned) return kDifferent;
  std::optional<std::complex<double>> factor;
  for (int point = 0; point < kSignedPoints; ++point) {
    auto left = number_of(a.items[0], point), right = number_of(a.items[1], point);
    auto low = number_of(b.items[0], point), high = number_of(b.items[1], point);
    const bool whole = left && right && low && high;
    if (!whole && point < kPoints) return kUndecided;
    if (!whole) continue;
    if (std::abs(*low - *high) < 1e-12) return kDifferent;
    std::complex<double> ratio = (*left - *right) / (*low - *high);
    if (factor && !close(*factor, ratio, 1e-9)) return kDifferent;
    factor = ratio;
  }
  if (std::abs(*factor) < 1e-12) return kDifferent;
  bool positive = factor->real() > 0;
  return verdict(a.text == "=" || a.text == "!" || (positive ? same : turned));
}

Node without_percent(const Node& node) {
  return node.kind == Node::kPercent ? node.items[0] : node;
}

// 1 for infinity, -1 for its negative, 0 for anything else.
int infinite(const Node& node) {
  if (node.kind == Node::kInfinity) return 1;
  return node.kind == Node::kNegate ? -infinite(node.items[0]) : 0;
}

// The unit that a value is in; empty: none is said.
std::string unit_of(const Node& node) {
  std::string unit = node.unit;
  if (!is_scalar(node)) return unit;
  for (const Node& item : node.items)
    if (unit.empty()) unit = unit_of(item);
  return unit;
}

// A prime behind a number says feet or minutes: which of them, a word beside it does not tell.
bool units_differ(const std::string& one, const std::string& other) {
  return !one.empty() && !other.empty() && one != other && (one[0] == '\'') == (other[0] == '\'');
}

bool is_based(const Node& node) {
  return node.kind == Node::kFunction && node.text == "base";
}

// Numbers with a base: one numeral of one base. Against a number without one it is not said what that is in.
MathVerdict equal_based(const Node& a, const Node& b) {
  return is_based(a) && is_based(b) ? equal_in_order(a.items, b.items) : kUndecided;
}

MathVerdict equal(const Node& first, const Node& second) {
  Node a = essence(first), b = essence(second);
  if (infinite(a) != 0 || infinite(b) != 0) return verdict(infinite(a) == infinite(b));
  bool left_set = a.kind == Node::kSet || a.kind == Node::kList,
       right_set = b.kind == Node::kSet || b.kind == Node::kList;
  if (left_set && right_set) return equal_sets(a.items, b.items);
  if (a.kind == Node::kText || b.kind == Node::kText) {
    bool words =
        (a.kind == Node::kText || a.kind == Node::kSymbol) && (b.kind == Node::kText || b.kind == Node::kSymbol);
    return verdict(words && letters(a.text) == letters(b.text));
  }
  if (is_scalar(a) && is_scalar(b)) {
    if (is_based(a) || is_based(b)) return equal_based(a, b);
    const std::string one = unit_of(a), other = unit_of(b);
    if (units_differ(one, other)) return kDifferent;
    MathVerdict same = equal_values(a, b);
    if (same != kEqual && (a.kind == Node::kPercent) != (b.kind == Node::kPercent) &&
        equal_values(without_percent(a), without_percent(b)) == kEqual)
      return kEqual;
    return same;
  }
  if (a.kind != b.kind) return kDifferent;
  switch (a.kind) {
    case Node::kTuple:
      return a.text == b.text || fault("score.any_bracket") ? equal_in_order(a.items, b.items) : kDifferent;
    case Node::kMatrix:
      return equal_in_order(a.items, b.items);
    case Node::kUnion:
      return a.text != b.text ? kDifferent
             : a.text == "-"  ? equal_in_order(a.items, b.items)
                              : equal_sets(a.items, b.items);
    case Node::kRelation:
      return equal_relations(a, b);
    default:
      return kUndecided;
  }
}

// Ten digits, or the fraction of small denominator that they are.
std::string digits_of(std::complex<double> value) {
  if (std::abs(value.imag()) > 1e-12) {
    double real = std::abs(value.real()) < 1e-12 * std::abs(value) ? 0 : value.real();
    return fmt::format("{:.10g}{:+.10g}i", real, value.imag());
  }
  for (int below = 1; below <= 1000; ++below) {
    double above = value.real() * below;
    if (std::abs(above) < 1e9 && std::abs(above - std::nearbyint(above)) < 1e-10)
      return below == 1 ? fmt::format("{:.0f}", above + 0.0) : fmt::format("{:.0f}/{}", above, below);
  }
  return fmt::format("{:.10g}", value.real());
}

}  // namespace

MathVerdict math_equal(const MathNode& gold, const MathNode& answer) {
  return equal(gold, answer);
}

MathVerdict same_expression(const MathNode& a, const MathNode& b) {
  return is_scalar(a) && is_scalar(b) ? equal_values(a, b, 1e-12) : kDifferent;
}

std::string math_normal(const MathNode& node) {
  Node core = essence(node);
  if (is_scalar(core)) {
    if (auto exact = fraction_of(core)) return exact->text();
    if (core.kind == Node::kSymbol) return lowered(core.text);
    if (infinite(core) != 0) return infinite(core) > 0 ? "oo" : "-oo";
    auto value = number_of(core, 0), other = number_of(core, 1);
    if (!value || !other) return "";
    if (close(*value, *other, 1e-12)) return digits_of(*value);
    auto negative = number_of(core, kPoints);
    return digits_of(*value) + " at a point" + (negative ? ", " + digits_of(*negative) + " at another" : "");
  }
  if (core.kind == Node::kText) return letters(core.text);
  if (core.kind == Node::kInfinity) return "oo";
  std::vector<std::string> parts;
  const bool own = core.kind != Node::kRelation && several_subjects(core.items);
  for (const Node& item : core.items) {
    const Node* of = own ? subject(item) : nullptr;
    parts.push_back((of ? math_normal(*of) + " = " : "") + math_normal(item));
  }
  if (core.kind == Node::kSet || core.kind == Node::kList || (core.kind == Node::kUnion && core.text != "-"))
    std::sort(parts.begin(), parts.end());
  std::string inside = fmt::format("{}", fmt::join(parts, ", "));
  if (core.kind == Node::kTuple) return core.text.substr(0, 1) + inside + core.text.substr(1);
  if (core.kind == Node::kSet || core.kind == Node::kList) return "{" + inside + "}";
  return fmt::format("{}[{}]", core.text, inside);
}

}  // namespace sf::score
