// SPDX-License-Identifier: Apache-2.0
// Recursive descent over tokens: list > relation > union > sum > product > power > primary. No backtracking.
#include <algorithm>
#include <array>

#include "base/fault.h"
#include "score/math_lexer.h"
#include "score/math_node.h"
#include "score/strings.h"

namespace sf::score {
namespace {

using Node = MathNode;
using Token = MathToken;

constexpr std::array<std::string_view, 21> kNamedFunctions = {
    "sin",  "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh",
    "tanh", "log", "ln",  "lg",  "exp", "gcd", "lcm",    "min",    "max",    "abs"};
constexpr std::array<std::pair<std::string_view, char>, 15> kRelations = {{{"le", 'l'},
                                                                           {"leq", 'l'},
                                                                           {"leqslant", 'l'},
                                                                           {"ge", 'g'},
                                                                           {"geq", 'g'},
                                                                           {"geqslant", 'g'},
                                                                           {"ne", '!'},
                                                                           {"neq", '!'},
                                                                           {"in", 'i'},
                                                                           {"lt", '<'},
                                                                           {"gt", '>'},
                                                                           {"equiv", '='},
                                                                           {"to", '='},
                                                                           {"implies", '='},
                                                                           {"colon", '='}}};

struct Refused {};  // leaves the descent; never leaves this file

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Node run() {
    Node node = list();
    if (peek().kind != Token::kEnd) throw Refused{};
    return node;
  }

 private:
  struct Level {
    explicit Level(int& depth) : depth_(depth) {
      if (++depth_ > kMostMathDepth && !fault("score.any_depth")) throw Refused{};
    }
    ~Level() { --depth_; }
    int& depth_;
  };

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  bool sign(char c, size_t ahead = 0) const { return peek(ahead).kind == Token::kSign && peek(ahead).text[0] == c; }
  bool command(std::string_view name) const { return peek().kind == Token::kCommand && peek().text == name; }
  bool take(char c) {
    if (!sign(c)) return false;
    ++at_;
    return true;
  }
  bool take_command(std::string_view name) {
    if (!command(name)) return false;
    ++at_;
    return true;
  }
  void want(char c) {
    if (!take(c)) throw Refused{};
  }

  static Node made(Node::Kind kind, std::vector<Node> items, std::string text = "") {
    return {kind, std::move(text), std::move(items), ""};
  }

  Node list() {
    Level level(depth_);
    std::vector<Node> items;
    items.push_back(relation());
    while (sign(',') || sign(';')) {
      ++at_;
      while (sign(',')) ++at_;  // ", and"
      items.push_back(relation());
    }
    return items.size() == 1 ? std::move(items[0]) : made(Node::kList, std::move(items));
  }

  char relation_sign() {
    if (sign('=') || sign('<') || sign('>')) {
      char c = peek().text[0];
      ++at_;
      if (c != '=' && take('=')) return c == '<' ? 'l' : 'g';
      take('=');
      return c;
    }
    for (const auto& [name, c] : kRelations)
      if (take_command(name)) return c;
    return 0;
  }

  Node relation() {
    std::vector<Node> items;
    std::string signs;
    items.push_back(sets());
    while (char c = relation_sign()) {
      signs += c;
      items.push_back(sets());
    }
    return items.size() == 1 ? std::move(items[0]) : made(Node::kRelation, std::move(items), signs);
  }

  Node sets() {
    Node node = sum();
    while (true) {
      char c = take_command("cup") ? 'U' : take_command("cap") ? 'n' : take_command("setminus") ? '-' : 0;
      if (c == 0) return node;
      Node other = sum();
      if (node.kind == Node::kUnion && node.text[0] == c)
        node.items.push_back(std::move(other));
      else
        node = made(Node::kUnion, two(std::move(node), std::move(other)), std::string(1, c));
    }
  }

  static std::vector<Node> two(Node a, Node b) {
    std::vector<Node> items;
    items.push_back(std::move(a));
    items.push_back(std::move(b));
    return items;
  }
  static std::vector<Node> one(Node a) {
    std::vector<Node> items;
    items.push_back(std::move(a));
    return items;
  }

  Node signed_term() {
    if (take('-')) return made(Node::kNegate, one(signed_term_again()));
    if (take('+')) return signed_term_again();
    if (take_command("pm") || take_command("mp")) return made(Node::kPlusMinus, one(product()));
    return product();
  }
  Node signed_term_again() {
    Level level(depth_);
    return signed_term();
  }

  Node sum() {
    Level level(depth_);
    std::vector<Node> items;
    items.push_back(signed_term());
    while (true) {
      if (take('+')) {
        items.push_back(product());
      } else if (take('-')) {
        items.push_back(made(Node::kNegate, one(signed_term())));
      } else if (take_command("pm") || take_command("mp")) {
        Node left = items.size() == 1 ? std::move(items[0]) : made(Node::kAdd, std::move(items));
        items.clear();
        items.push_back(made(Node::kPlusMinus, two(std::move(left), product())));
      } else {
        return items.size() == 1 ? std::move(items[0]) : made(Node::kAdd, std::move(items));
      }
    }
  }

  // Whether a factor may begin here without a sign of multiplication.
  bool begins_factor() const {
    const Token& token = peek();
    if (token.kind == Token::kLetter) return true;
    if (token.kind == Token::kSign)
      return token.text[0] == '(' || token.text[0] == '{' || (token.text[0] == '|' && !in_bars_);
    if (token.kind != Token::kCommand) return false;
    constexpr std::array<std::string_view, 13> kNoFactor = {
        "cup", "cap", "setminus", "pm", "mp", "cdot", "times", "div", "}", "rfloor", "rceil", "rangle", "mid"};
    if (std::find(kNoFactor.begin(), kNoFactor.end(), token.text) != kNoFactor.end()) return false;
    if (token.text.starts_with("end:") || token.text == "pmod" || token.text == "bmod") return false;
    return std::none_of(kRelations.begin(), kRelations.end(), [&](const auto& r) { return r.first == token.text; });
  }

  // The words of the units at the cursor, spaces between.
  std::string units() {
    std::string words;
    while (true) {
      if (peek().kind != Token::kUnit && !(sign('/') && peek(1).kind == Token::kUnit)) return words;
      if (take('/')) words += " /";
      words += " " + peek().text;
      ++at_;
      if (!take('^')) continue;
      const Node raised = exponent();
      if (raised.kind == Node::kNumber) words += " ^" + raised.text;
    }
  }

  Node product() {
    Level level(depth_);
    Node node = power();
    std::vector<Node> factors;
    std::string words;
    auto together = [&] {
      if (factors.empty()) return;
      factors.insert(factors.begin(), std::move(node));
      node = made(Node::kMultiply, std::move(factors));
      factors.clear();
    };
    while (true) {
      words += units();
      if (take('*') || take_command("cdot") || take_command("times") || take_command("ast")) {
        factors.push_back(factor_with_sign());
      } else if (take('/') || take_command("div")) {
        together();
        node = made(Node::kDivide, two(std::move(node), factor_with_sign()));
      } else if (command("frac") && node.kind == Node::kNumber && factors.empty()) {
        node = mixed(std::move(node), power());
      } else if (begins_factor()) {
        factors.push_back(power());
      } else {
        together();
        if (!words.empty()) node.unit = unit_of_words(words);
        return node;
      }
    }
  }

  Node factor_with_sign() {
    if (take('-')) return made(Node::kNegate, one(power()));
    take('+');
    return power();
  }

  // 3\frac{1}{2} is three and a half.
  static Node mixed(Node whole, Node fraction) {
    bool plain = fraction.kind == Node::kDivide && fraction.items[0].kind == Node::kNumber &&
                 fraction.items[1].kind == Node::kNumber;
    return made(plain ? Node::kAdd : Node::kMultiply, two(std::move(whole), std::move(fraction)));
  }

  Node exponent() {
    Level level(depth_);
    if (take('{')) {
      Node node = list();
      want('}');
      return node;
    }
    if (take('-')) return made(Node::kNegate, one(primary()));
    if (take('*')) return made(Node::kSymbol, {}, "*");
    return primary();
  }

  Node power() {
    Level level(depth_);
    Node node = primary();
    while (true) {
      if (take('^')) {
        if (take('\'')) {
          primed(node);
        } else if (take_command("prime")) {
          primed(node);
        } else if (sign('{') && peek(1).kind == Token::kCommand && peek(1).text == "prime") {
          ++at_;
          while (take_command("prime")) primed(node);
          want('}');
        } else {
          node = made(Node::kPower, two(std::move(node), exponent()));
        }
      } else if (take('!')) {
        node = made(Node::kFunction, one(std::move(node)), "factorial");
      } else if (take('%')) {
        node = made(Node::kPercent, one(std::move(node)));
      } else if (take('_')) {
        subscript(node);
      } else if (take('\'')) {
        primed(node);
      } else if (node.kind == Node::kSymbol && applies(node.text)) {
        node = applied(std::move(node));
      } else {
        return node;
      }
    }
  }

  // A prime is part of a symbol's name; behind a number it says minutes or feet.
  static void primed(Node& node) {
    if (node.kind == Node::kSymbol)
      node.text += '\'';
    else if (node.kind == Node::kNumber)
      node.unit += '\'';
    else
      node = made(Node::kFunction, one(std::move(node)), "derivative");
  }

  // f, g and h before one number, one letter or a list are functions; before a sum, a letter is a factor.
  bool applies(const std::string& name) const {
    if (!sign('(') || std::string_view("fgh").find(name[0]) == std::string_view::npos) return false;
    if (name.size() > 1 && name[1] != '\'' && name[1] != '_') return false;
    size_t at = sign('-', 1) ? 2 : 1;
    const bool single = peek(at).kind == Token::kNumber || peek(at).kind == Token::kLetter;
    return single && (sign(')', at + 1) || sign(',', at + 1));
  }
  Node applied(Node name) {
    ++at_;
    Node of = bracketed('(');
    std::vector<Node> items = of.kind == Node::kTuple ? std::move(of.items) : one(std::move(of));
    return made(Node::kFunction, std::move(items), name.text + "()");
  }

  // A symbol's index is part of its name; a number's is its base.
  void subscript(Node& node) {
    size_t begin = at_;
    Node index = exponent();
    if (node.kind == Node::kNumber) node = made(Node::kFunction, two(std::move(node), std::move(index)), "base");
    if (node.kind != Node::kSymbol) return;
    node.text += '_';
    for (size_t i = begin; i < at_; ++i)
      if (tokens_[i].text != "{" && tokens_[i].text != "}") node.text += tokens_[i].text;
  }

  // An argument of \frac and \sqrt: {...}, or one digit, letter or command.
  Node argument() {
    Level level(depth_);
    if (take('{')) {
      Node node = list();
      want('}');
      return node;
    }
    if (peek().kind == Token::kNumber && peek().text.size() > 1) {
      Node digit = made(Node::kNumber, {}, peek().text.substr(0, 1));
      tokens_[at_].text.erase(0, 1);
      return digit;
    }
    return primary();
  }

  Node named_function() {
    std::string name = peek().text;
    ++at_;
    std::vector<Node> items;
    std::string base;
    Node raised;
    bool has_power = false;
    while (sign('_') || sign('^')) {
      if (take('_')) {
        items.push_back(exponent());
        base = "_base";
      } else if (take('^')) {
        raised = exponent();
        has_power = true;
      }
    }
    Node of = sign('(') || sign('{') ? power() : product();
    if (of.kind == Node::kTuple && (name == "gcd" || name == "lcm" || name == "min" || name == "max"))
      for (Node& item : of.items) items.push_back(std::move(item));
    else
      items.push_back(std::move(of));
    Node node = made(Node::kFunction, std::move(items), name + base);
    return has_power ? made(Node::kPower, two(std::move(node), std::move(raised))) : node;
  }

  Node bracketed(char open) {
    Node inside = sign(')') || sign(']') ? made(Node::kList, {}) : list();
    char close = sign(')') ? ')' : sign(']') ? ']' : 0;
    if (close == 0) throw Refused{};
    ++at_;
    if (inside.kind != Node::kList) return inside;
    return made(Node::kTuple, std::move(inside.items), std::string{open, close});
  }

  Node matrix(const std::string& name) {
    std::vector<Node> rows;
    std::vector<Node> cells;
    while (true) {
      cells.push_back(list());
      if (take('&')) continue;
      rows.push_back(made(Node::kList, std::move(cells)));
      cells.clear();
      bool more = peek().kind == Token::kRow;
      if (more) ++at_;
      if (take_command("end:" + name)) return made(Node::kMatrix, std::move(rows));
      if (!more) throw Refused{};
    }
  }

  Node closed_by(std::string_view closing, const char* function) {
    Node node = list();
    if (!take_command(closing)) throw Refused{};
    return made(Node::kFunction, one(std::move(node)), function);
  }

  Node command_node() {
    std::string name = peek().text;
    if (std::find(kNamedFunctions.begin(), kNamedFunctions.end(), name) != kNamedFunctions.end())
      return named_function();
    ++at_;
    if (name == "frac" || name == "dfrac" || name == "tfrac" || name == "cfrac") {
      Node above = argument();
      return made(Node::kDivide, two(std::move(above), argument()));
    }
    if (name == "binom" || name == "dbinom" || name == "tbinom") {
      Node above = argument();
      return made(Node::kFunction, two(std::move(above), argument()), "binom");
    }
    if (name == "sqrt") return root();
    if (name == "cbrt") return made(Node::kRoot, two(made(Node::kNumber, {}, "3"), argument()));
    if (name == "infty" || name == "inf" || name == "infinity") return made(Node::kInfinity, {});
    if (name == "emptyset" || name == "varnothing") return made(Node::kSet, {});
    if (name == "{") {
      if (take_command("}")) return made(Node::kSet, {});
      Node inside = list();
      if (!take_command("}")) throw Refused{};
      return made(Node::kSet, inside.kind == Node::kList ? std::move(inside.items) : one(std::move(inside)));
    }
    if (name.starts_with("begin:") && name.ends_with("matrix")) return matrix(name.substr(6));
    if (name == "lfloor") return closed_by("rfloor", "floor");
    if (name == "lceil") return closed_by("rceil", "ceil");
    if (name == "langle") {
      Node inside = list();
      if (!take_command("rangle")) throw Refused{};
      return made(Node::kTuple, inside.kind == Node::kList ? std::move(inside.items) : one(std::move(inside)), "<>");
    }
    if (name == "overline" || name == "vec" || name == "hat" || name == "bar" || name == "overrightarrow") {
      size_t begin = at_;
      argument();
      std::string inside;
      for (size_t i = begin; i < at_; ++i) inside += tokens_[i].text;
      return made(Node::kSymbol, {}, name + inside);
    }
    if (name == "boxed" || name == "fbox") return argument();
    constexpr std::array<std::string_view, 8> kNotation = {"sum", "int", "prod", "lim", "pmod", "bmod", "mod", "cdots"};
    if (name.find(':') != std::string::npos && !name.starts_with("set:")) throw Refused{};
    if (std::find(kNotation.begin(), kNotation.end(), name) != kNotation.end()) throw Refused{};
    return made(Node::kSymbol, {}, name);
  }

  Node root() {
    Node index = made(Node::kNumber, {}, "2");
    if (take('[')) {
      index = list();
      want(']');
    }
    if (!sign('(')) return made(Node::kRoot, two(std::move(index), argument()));
    ++at_;
    return made(Node::kRoot, two(std::move(index), bracketed('(')));
  }

  Node number() {
    Node node = made(Node::kNumber, {}, peek().text);
    ++at_;
    if (node.text.find('.') != std::string::npos && command("overline")) {
      ++at_;
      Node digits = argument();
      if (digits.kind != Node::kNumber) throw Refused{};
      node.repeat = digits.text;
    }
    return node;
  }

  Node primary() {
    Level level(depth_);
    const Token token = peek();
    switch (token.kind) {
      case Token::kNumber:
        return number();
      case Token::kLetter:
        ++at_;
        return made(Node::kSymbol, {}, token.text);
      case Token::kWord:
      case Token::kUnit:
        return words();
      case Token::kCommand:
        return command_node();
      case Token::kSign:
        return bracket_node(token.text[0]);
      default:
        throw Refused{};
    }
  }

  Node words() {
    std::string text;
    while (peek().kind == Token::kWord || peek().kind == Token::kUnit ||
           (peek().kind == Token::kLetter && !text.empty())) {
      text += (text.empty() ? "" : " ") + peek().text;
      ++at_;
    }
    return made(Node::kText, {}, text);
  }

  Node bracket_node(char c) {
    if (c == '(' || c == '[') {
      ++at_;
      return bracketed(c);
    }
    if (c == '{') {
      ++at_;
      Node node = list();
      want('}');
      return node;
    }
    if (c != '|') throw Refused{};
    ++at_;
    bool outer = in_bars_;
    in_bars_ = true;
    Node node = list();
    in_bars_ = outer;
    want('|');
    return made(Node::kFunction, one(std::move(node)), "abs");
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  bool in_bars_ = false;
};

}  // namespace

std::optional<MathNode> parse_math(std::string_view text) {
  if (text.size() > kMostMathBytes) return std::nullopt;
  std::vector<Token> tokens = lex_math(text);
  if (tokens.size() > kMostMathTokens) return std::nullopt;
  try {
    return Parser(std::move(tokens)).run();
  } catch (const Refused&) {
    return std::nullopt;
  }
}

std::string compact_math(std::string_view text) {
  std::string compact(text.substr(0, kMostMathBytes));
  for (std::string_view gone :
       {"\\left", "\\right", "\\displaystyle", "\\,", "\\!", "\\;", "\\ ", "\\quad", "~", "$", " ", "\n", "\t"})
    remove_all(compact, gone);
  replace_all(compact, "dfrac", "frac");
  replace_all(compact, "tfrac", "frac");
  while (compact.ends_with('.')) compact.pop_back();
  return compact;
}

}  // namespace sf::score
