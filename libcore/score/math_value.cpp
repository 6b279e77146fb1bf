// SPDX-License-Identifier: Apache-2.0
#include "score/math_value.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/fault.h"
#include "base/hash.h"
#include "score/strings.h"

namespace sf::score {
namespace {

using Node = MathNode;
using Wide = __int128;
constexpr Wide kMostWide = Wide{1} << 120;
constexpr int64_t kMostFactorial = 5000;

Wide absolute(Wide value) {
  return value < 0 ? -value : value;
}

Wide common_divisor(Wide a, Wide b) {
  for (a = absolute(a), b = absolute(b); b != 0;) {
    Wide rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

std::optional<Wide> times(Wide a, Wide b) {
  Wide result = 0;
  if (__builtin_mul_overflow(a, b, &result) || absolute(result) > kMostWide) return std::nullopt;
  return result;
}

std::optional<Fraction> lowest(std::optional<Wide> above, std::optional<Wide> below) {
  if (!above || !below || *below == 0) return std::nullopt;
  Wide divisor = common_divisor(*above, *below);
  Wide sign = *below < 0 ? -1 : 1;
  return Fraction{sign * *above / divisor, sign * *below / divisor};
}

std::optional<int64_t> whole_of(const std::optional<Fraction>& value, int64_t most) {
  if (!value || value->below != 1 || absolute(value->above) > most) return std::nullopt;
  return static_cast<int64_t>(value->above);
}

// Digits with a point and a repeating tail: (digits without point, number of digits behind it).
struct Decimal {
  std::string digits;
  size_t behind = 0;
};
Decimal decimal_of(const std::string& text) {
  Decimal decimal{text, 0};
  size_t point = text.find('.');
  if (point != std::string::npos) {
    decimal.digits.erase(point, 1);
    decimal.behind = text.size() - point - 1;
  }
  return decimal;
}

// The operations of a kind of value; every one may have no result.
struct Fractions {
  using Value = Fraction;
  std::optional<Value> whole(int64_t value) const { return Fraction{value, 1}; }
  std::optional<Value> digits(const std::string& text) const {
    Wide value = 0;
    for (char c : text) {
      auto next = times(value, 10);
      if (!next) return std::nullopt;
      value = *next + (c - '0');
    }
    return Fraction{value, 1};
  }
  std::optional<Value> symbol(const std::string&) const { return std::nullopt; }
  std::optional<Value> add(const Value& a, const Value& b) const {
    auto left = times(a.above, b.below), right = times(b.above, a.below);
    if (!left || !right) return std::nullopt;
    return lowest(*left + *right, times(a.below, b.below));
  }
  std::optional<Value> multiply(const Value& a, const Value& b) const {
    return lowest(times(a.above, b.above), times(a.below, b.below));
  }
  std::optional<Value> invert(const Value& a) const { return lowest(a.below, a.above); }
  std::optional<Value> root(int64_t index, const Value& value) const {
    auto above = whole_root(index, value.above), below = whole_root(index, value.below);
    if (!above || !below) return std::nullopt;
    return Fraction{*above, *below};
  }
  static std::optional<Wide> whole_root(int64_t index, Wide value) {
    if (value < 0 && index % 2 == 0) return std::nullopt;
    auto guess = static_cast<Wide>(
        std::llround(std::pow(static_cast<double>(absolute(value)), 1.0 / static_cast<double>(index))));
    for (Wide root = guess > 0 ? guess - 1 : 0; root <= guess + 1; ++root) {
      std::optional<Wide> power = 1;
      for (int64_t i = 0; i < index && power; ++i) power = times(*power, root);
      if (power && *power == absolute(value)) return value < 0 ? -root : root;
    }
    return std::nullopt;
  }
  std::optional<Value> function(const Node&) const { return std::nullopt; }
};

constexpr std::array<uint64_t, 2> kPrimes = {2305843009213693921ull, 2305843009213693693ull};  // below 2^61, 1 mod 4

uint64_t product(uint64_t a, uint64_t b, uint64_t prime) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b % prime);
}
uint64_t power(uint64_t base, uint64_t exponent, uint64_t prime) {
  uint64_t result = 1;
  for (; exponent > 0; exponent >>= 1, base = product(base, base, prime))
    if (exponent & 1) result = product(result, base, prime);
  return result;
}
// A square root of -1: c^((p-1)/4) of the first c that is no square.
uint64_t imaginary(uint64_t prime) {
  for (uint64_t c = 2;; ++c)
    if (power(c, (prime - 1) / 2, prime) == prime - 1) return power(c, (prime - 1) / 4, prime);
}

struct ResidueDomain {
  using Value = Residues;
  std::optional<Value> whole(int64_t value) const {
    Value result{};
    for (size_t i = 0; i < 2; ++i) {
      uint64_t size = static_cast<uint64_t>(value < 0 ? -value : value) % kPrimes[i];
      result[i] = value < 0 && size > 0 ? kPrimes[i] - size : size;
    }
    return result;
  }
  std::optional<Value> digits(const std::string& text) const {
    Value result{};
    for (char c : text)
      for (size_t i = 0; i < 2; ++i)
        result[i] = (product(result[i], 10, kPrimes[i]) + static_cast<uint64_t>(c - '0')) % kPrimes[i];
    return result;
  }
  std::optional<Value> symbol(const std::string& name) const {
    if (name == "i") {
      static const Value unit = {imaginary(kPrimes[0]), imaginary(kPrimes[1])};
      return unit;
    }
    return Value{xxh3_64("0:" + name) % kPrimes[0], xxh3_64("1:" + name) % kPrimes[1]};
  }
  std::optional<Value> add(const Value& a, const Value& b) const {
    return Value{(a[0] + b[0]) % kPrimes[0], (a[1] + b[1]) % kPrimes[1]};
  }
  std::optional<Value> multiply(const Value& a, const Value& b) const {
    return Value{product(a[0], b[0], kPrimes[0]), product(a[1], b[1], kPrimes[1])};
  }
  std::optional<Value> invert(const Value& a) const {
    if (a[0] == 0 || a[1] == 0) return std::nullopt;
    return Value{power(a[0], kPrimes[0] - 2, kPrimes[0]), power(a[1], kPrimes[1] - 2, kPrimes[1])};
  }
  std::optional<Value> root(int64_t, const Value&) const { return std::nullopt; }
  std::optional<Value> function(const Node&) const { return std::nullopt; }
};

using Complex = std::complex<double>;

struct Numbers {
  using Value = Complex;
  int point = 0;
  std::optional<Value> whole(int64_t value) const { return Value(static_cast<double>(value)); }
  std::optional<Value> digits(const std::string& text) const {
    double value = 0;
    for (char c : text) value = 10 * value + (c - '0');
    return Value(value);
  }
  std::optional<Value> symbol(const std::string& name) const {
    if (name == "pi") return Value(std::numbers::pi);
    if (name == "e") return Value(std::numbers::e);
    if (name == "i") return Value(0, 1);
    uint64_t bits = xxh3_64(name + static_cast<char>('0' + point));
    const double size = 0.6 + 1.3 * static_cast<double>(bits >> 11) * 0x1p-53;
    const bool negative = point == 4 || (point > 4 && (bits & 1));
    return Value(negative ? -size : size);
  }
  // Whether a real function ends here: its branch beyond is a convention on which two right answers may differ.
  bool beyond(Value value) const { return point >= 4 && value.imag() == 0 && value.real() < 0; }
  std::optional<Value> add(Value a, Value b) const { return a + b; }
  std::optional<Value> multiply(Value a, Value b) const { return a * b; }
  std::optional<Value> invert(Value a) const { return a == Value(0) ? std::nullopt : std::optional(Value(1) / a); }
  std::optional<Value> root(int64_t index, Value value) const {
    double n = static_cast<double>(index);
    if (value.imag() == 0 && index % 2 == 1)
      return Value(std::copysign(std::pow(std::abs(value.real()), 1 / n), value.real()));
    if (beyond(value)) return std::nullopt;
    if (value.imag() == 0 && value.real() >= 0)
      return Value(index == 2 ? std::sqrt(value.real()) : std::pow(value.real(), 1 / n));
    return std::pow(value, 1 / n);
  }
  std::optional<Value> function(const Node& node) const;
};

template <class Domain>
std::optional<typename Domain::Value> evaluate(const Node& node, const Domain& domain);

template <class Domain>
std::optional<typename Domain::Value> from_fraction(const std::optional<Fraction>& value, const Domain& domain) {
  auto above = whole_of(value ? std::optional(Fraction{value->above, 1}) : std::nullopt, INT64_MAX);
  auto below = whole_of(value ? std::optional(Fraction{value->below, 1}) : std::nullopt, INT64_MAX);
  if (!above || !below) return std::nullopt;
  auto top = domain.whole(*above), bottom = domain.invert(*domain.whole(*below));
  return bottom ? domain.multiply(*top, *bottom) : std::nullopt;
}

template <class Domain>
std::optional<typename Domain::Value> integer_power(typename Domain::Value base, int64_t exponent,
                                                    const Domain& domain) {
  std::optional<typename Domain::Value> result = domain.whole(1), square = base;
  for (uint64_t left = static_cast<uint64_t>(exponent < 0 ? -exponent : exponent); left > 0 && result; left >>= 1) {
    if (left & 1) result = square ? domain.multiply(*result, *square) : std::nullopt;
    if (left > 1 && square) square = domain.multiply(*square, *square);
  }
  return exponent < 0 && result ? domain.invert(*result) : result;
}

template <class Domain>
std::optional<typename Domain::Value> raised(const Node& node, const Domain& domain) {
  auto base = evaluate(node.items[0], domain);
  if (!base) return std::nullopt;
  std::optional<Fraction> exponent = fraction_of(node.items[1]);
  if (auto whole = whole_of(exponent, 1'000'000'000)) return integer_power(*base, *whole, domain);
  if constexpr (std::is_same_v<Domain, Numbers>) {
    auto power = evaluate(node.items[1], domain);
    if (!power || domain.beyond(*base)) return std::nullopt;
    return std::pow(*base, *power);
  } else {
    auto index = exponent ? whole_of(Fraction{exponent->below, 1}, 64) : std::nullopt;
    auto times = exponent ? whole_of(Fraction{exponent->above, 1}, 1'000'000) : std::nullopt;
    if (!index || !times) return std::nullopt;
    std::optional<Fraction> exact;
    if constexpr (std::is_same_v<Domain, Fractions>)
      exact = base;  // asking again at each level would double the work with each
    else
      exact = fraction_of(node.items[0]);
    if (!exact) return std::nullopt;
    auto root = from_fraction(Fractions().root(*index, *exact), domain);
    return root ? integer_power(*root, *times, domain) : std::nullopt;
  }
}

template <class Domain>
std::optional<typename Domain::Value> rooted(const Node& node, const Domain& domain) {
  auto index = whole_of(fraction_of(node.items[0]), 64);
  if (!index || *index < 2) return std::nullopt;
  if constexpr (!std::is_same_v<Domain, Fractions>)
    if (auto exact = fraction_of(node.items[1]))
      if (auto root = Fractions().root(*index, *exact)) return from_fraction(root, domain);
  auto value = evaluate(node.items[1], domain);
  return value ? domain.root(*index, *value) : std::nullopt;
}

template <class Domain>
std::optional<typename Domain::Value> decimal(const Node& node, const Domain& domain) {
  Decimal parts = decimal_of(node.text);
  auto value = domain.digits(parts.digits);
  auto ten = domain.whole(10);
  auto scale = integer_power(*ten, -static_cast<int64_t>(parts.behind), domain);
  value = value && scale ? domain.multiply(*value, *scale) : std::nullopt;
  if (node.repeat.empty() || !value) return value;
  auto tail = domain.digits(node.repeat);
  auto nines = domain.digits(std::string(node.repeat.size(), '9'));
  auto share = nines ? domain.invert(*nines) : std::nullopt;
  tail = tail && share ? domain.multiply(*tail, *share) : std::nullopt;
  tail = tail ? domain.multiply(*tail, *scale) : std::nullopt;
  return tail ? domain.add(*value, *tail) : std::nullopt;
}

template <class Domain>
std::optional<typename Domain::Value> counted(const Node& node, const Domain& domain) {
  auto n = whole_of(fraction_of(node.items[0]), kMostFactorial);
  if (!n || *n < 0) return std::nullopt;
  std::optional<typename Domain::Value> result = domain.whole(1);
  if (node.text == "factorial") {
    for (int64_t i = 2; i <= *n && result; ++i) result = domain.multiply(*result, *domain.whole(i));
    return result;
  }
  auto k = whole_of(fraction_of(node.items[1]), *n);
  if (!k || *k < 0) return std::nullopt;
  for (int64_t i = 1; i <= *k && result; ++i) {
    result = domain.multiply(*result, *domain.whole(*n - *k + i));
    if (result) result = domain.multiply(*result, *domain.invert(*domain.whole(i)));
  }
  return result;
}

template <class Domain>
std::optional<typename Domain::Value> function_value(const Node& node, const Domain& domain) {
  if (node.text == "factorial" || node.text == "binom") return counted(node, domain);
  if (node.text == "abs" || node.text == "floor" || node.text == "ceil") {
    if (auto exact = fraction_of(node.items[0])) {
      Wide down = exact->above / exact->below - (exact->above % exact->below < 0 ? 1 : 0);
      Wide up = down + (down * exact->below == exact->above ? 0 : 1);
      Fraction value = node.text == "abs" ? Fraction{absolute(exact->above), exact->below}
                                          : Fraction{node.text == "floor" ? down : up, 1};
      return from_fraction(std::optional(value), domain);
    }
  }
  return domain.function(node);
}

template <class Domain>
std::optional<typename Domain::Value> evaluate(const Node& node, const Domain& domain) {
  using Result = std::optional<typename Domain::Value>;
  switch (node.kind) {
    case Node::kNumber:
      return decimal(node, domain);
    case Node::kSymbol:
      return domain.symbol(node.text);
    case Node::kAdd:
    case Node::kMultiply: {
      Result result = domain.whole(node.kind == Node::kAdd ? 0 : 1);
      for (const Node& item : node.items) {
        Result value = evaluate(item, domain);
        if (!value || !result) return std::nullopt;
        result = node.kind == Node::kAdd ? domain.add(*result, *value) : domain.multiply(*result, *value);
      }
      return result;
    }
    case Node::kNegate: {
      Result value = evaluate(node.items[0], domain);
      return value ? domain.multiply(*value, *domain.whole(-1)) : value;
    }
    case Node::kDivide: {
      Result above = evaluate(node.items[0], domain), below = evaluate(node.items[1], domain);
      if (below) below = domain.invert(*below);
      return above && below ? domain.multiply(*above, *below) : std::nullopt;
    }
    case Node::kPower:
      return raised(node, domain);
    case Node::kRoot:
      return rooted(node, domain);
    case Node::kPercent: {
      Result value = evaluate(node.items[0], domain);
      return value ? domain.multiply(*value, *domain.invert(*domain.whole(100))) : value;
    }
    case Node::kFunction:
      return function_value(node, domain);
    default:
      return std::nullopt;
  }
}

std::optional<Complex> Numbers::function(const Node& node) const {
  std::vector<Complex> values;
  for (const Node& item : node.items) {
    auto value = evaluate(item, *this);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  Complex x = values.back();
  const std::string& f = node.text;
  if (f.ends_with("()")) {  // a function of which nothing is known: a smooth one that its name chooses
    Complex sum = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double speed = 0.3 + static_cast<double>(xxh3_64(f + std::to_string(i)) >> 11) * 0x1p-53;
      sum += std::sin(speed * values[i] + speed) + speed * values[i] * values[i];
    }
    return sum;
  }
  if (f.starts_with("l") && beyond(x)) return std::nullopt;  // logarithms
  if (f == "sin") return std::sin(x);
  if (f == "cos") return std::cos(x);
  if (f == "tan") return std::tan(x);
  if (f == "cot") return 1.0 / std::tan(x);
  if (f == "sec") return 1.0 / std::cos(x);
  if (f == "csc") return 1.0 / std::sin(x);
  if (f == "arcsin") return std::asin(x);
  if (f == "arccos") return std::acos(x);
  if (f == "arctan") return std::atan(x);
  if (f == "sinh") return std::sinh(x);
  if (f == "cosh") return std::cosh(x);
  if (f == "tanh") return std::tanh(x);
  if (f == "exp") return std::exp(x);
  if (f == "ln" || f == "log") return std::log(x);
  if (f == "lg") return std::log10(x);
  if (f == "log_base" && values.size() == 2) return std::log(x) / std::log(values[0]);
  if (f == "abs") return Complex(std::abs(x));
  if (f == "floor" && x.imag() == 0) return Complex(std::floor(x.real()));
  if (f == "ceil" && x.imag() == 0) return Complex(std::ceil(x.real()));
  bool real = std::all_of(values.begin(), values.end(), [](Complex value) { return value.imag() == 0; });
  auto less = [](Complex a, Complex b) { return a.real() < b.real(); };
  if (f == "min" && real) return *std::min_element(values.begin(), values.end(), less);
  if (f == "max" && real) return *std::max_element(values.begin(), values.end(), less);
  return std::nullopt;
}

}  // namespace

std::string Fraction::text() const {
  auto digits = [](Wide value) {
    std::string text;
    for (Wide left = absolute(value); left > 0 || text.empty(); left /= 10)
      text.insert(text.begin(), static_cast<char>('0' + static_cast<int>(left % 10)));
    return (value < 0 ? "-" : "") + text;
  };
  return digits(above) + (below == 1 ? "" : "/" + digits(below));
}

std::optional<Fraction> fraction_of(const MathNode& node) {
  return evaluate(node, Fractions());
}
std::optional<Residues> residues_of(const MathNode& node) {
  return evaluate(node, ResidueDomain());
}
std::optional<std::complex<double>> number_of(const MathNode& node, int point) {
  auto value = evaluate(node, Numbers{point});
  if (!value || !std::isfinite(value->real()) || !std::isfinite(value->imag())) return std::nullopt;
  return value;
}

void collect_symbols(const MathNode& node, std::set<std::string>& into) {
  if (node.kind == MathNode::kSymbol && node.text != "pi" && node.text != "e" && node.text != "i")
    into.insert(node.text);
  for (const MathNode& item : node.items) collect_symbols(item, into);
}

bool has_decimal(const MathNode& node) {
  if (node.kind == MathNode::kNumber && node.text.find('.') != std::string::npos && node.repeat.empty()) return true;
  return std::any_of(node.items.begin(), node.items.end(), has_decimal);
}

}  // namespace sf::score
