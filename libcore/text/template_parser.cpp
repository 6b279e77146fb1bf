// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "text/template_ast.h"
#include "text/template_lexer.h"

namespace sf::text {
namespace {

class Parser {
 public:
  explicit Parser(const TemplateSource& source) : source_(source), tokens_(lex_template(source)) {}

  Body run() {
    Body body = block({});
    if (here().kind != Token::kEnd) refuse(fmt::format("unexpected tag '{}'", peek(1).text));
    return body;
  }

 private:
  // ---- tokens
  const Token& peek(size_t ahead) const { return tokens_[std::min(next_ + ahead, tokens_.size() - 1)]; }
  const Token& here() const { return peek(0); }
  [[noreturn]] void refuse_at(size_t at, std::string_view what) const {
    fail(Exit::kConfig, "{}: {}", source_.place(at), what);
  }
  [[noreturn]] void refuse(std::string_view what) const { refuse_at(here().at, what); }
  static std::string shown(const Token& token) {
    switch (token.kind) {
      case Token::kText:
        return "text";
      case Token::kOutputBegin:
        return "{{";
      case Token::kOutputEnd:
        return "}}";
      case Token::kBlockBegin:
        return "{%";
      case Token::kBlockEnd:
        return "%}";
      case Token::kEnd:
        return "the end of the template";
      case Token::kString:
        return "a string";
      default:
        return token.text;
    }
  }
  Token take() { return tokens_[std::min(next_++, tokens_.size() - 1)]; }
  bool is_op(std::string_view op) const { return here().kind == Token::kOperator && here().text == op; }
  bool is_name(std::string_view name) const { return here().kind == Token::kName && here().text == name; }
  bool skip_op(std::string_view op) { return is_op(op) && (++next_, true); }
  bool skip_name(std::string_view name) { return is_name(name) && (++next_, true); }
  void want_op(std::string_view op) {
    if (!skip_op(op)) refuse(fmt::format("wanted '{}', found {}", op, shown(here())));
  }
  Token want(Token::Kind kind, std::string_view what) {
    if (here().kind != kind) refuse(fmt::format("wanted {}, found {}", what, shown(here())));
    return take();
  }
  std::string want_target() {
    Token name = want(Token::kName, "a name");
    static constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None", "and",
                                                     "or",   "not",   "in",   "is",   "if",    "else"};
    if (std::find(std::begin(kReserved), std::end(kReserved), name.text) != std::end(kReserved))
      refuse_at(name.at, fmt::format("'{}' cannot be set", name.text));
    return name.text;
  }

  struct Nesting {
    Parser& parser;
    explicit Nesting(Parser& p) : parser(p) {
      if (++p.nesting_ > kMaxTemplateDepth) p.refuse(fmt::format("nested deeper than {} levels", kMaxTemplateDepth));
    }
    ~Nesting() { --parser.nesting_; }
  };

  // ---- nodes
  ExprPtr node(Expr::Kind kind, size_t at) const {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->at = at;
    return expr;
  }
  void give(Expr& parent, ExprPtr child) const {
    if (child) parent.depth = std::max(parent.depth, child->depth + 1);
    if (parent.depth > 2 * kMaxTemplateDepth) refuse_at(parent.at, "an expression is too long");
    parent.args.push_back(std::move(child));
  }
  template <typename... Children>
  ExprPtr node_of(Expr::Kind kind, size_t at, Children... children) const {
    ExprPtr expr = node(kind, at);
    (give(*expr, std::move(children)), ...);
    return expr;
  }

  // ---- statements
  // Statements up to a tag named in `ends`, whose name is left in place behind its "{%"; or to the end of the template.
  Body block(std::initializer_list<std::string_view> ends) {
    Nesting nesting(*this);
    Body body;
    while (here().kind != Token::kEnd) {
      if (here().kind == Token::kText) {
        auto text = statement(Stmt::kText, here().at);
        text->text = take().text;
        body.push_back(std::move(text));
      } else if (here().kind == Token::kOutputBegin) {
        auto output = statement(Stmt::kOutput, take().at);
        output->value = tuple_or_expression();
        want(Token::kOutputEnd, "}}");
        body.push_back(std::move(output));
      } else {
        const Token& tag = peek(1);
        if (tag.kind != Token::kName) refuse(fmt::format("wanted a tag name, found {}", shown(tag)));
        if (std::find(ends.begin(), ends.end(), tag.text) != ends.end()) return body;
        ++next_;
        body.push_back(tag_statement());
      }
    }
    if (ends.size() > 0) refuse(fmt::format("wanted {{% {} %}}, found the end of the template", *(ends.end() - 1)));
    return body;
  }

  static std::unique_ptr<Stmt> statement(Stmt::Kind kind, size_t at) {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->at = at;
    return stmt;
  }
  void block_end() { want(Token::kBlockEnd, "%}"); }
  // The closing tag whose "{%" comes next.
  void closing() {
    next_ += 2;
    block_end();
  }

  std::unique_ptr<Stmt> tag_statement() {
    Token tag = take();
    if (tag.text == "if") return if_statement(tag.at);
    if (tag.text == "for") return for_statement(tag.at);
    if (tag.text == "set") return set_statement(tag.at);
    if (tag.text == "macro") return macro_statement(tag.at);
    if (tag.text == "generation") {
      auto stmt = statement(Stmt::kBlock, tag.at);
      block_end();
      stmt->body = block({"endgeneration"});
      closing();
      return stmt;
    }
    if (tag.text == "break" || tag.text == "continue") {
      if (loops_ == 0) refuse_at(tag.at, fmt::format("'{}' outside a for block", tag.text));
      block_end();
      return statement(tag.text == "break" ? Stmt::kBreak : Stmt::kContinue, tag.at);
    }
    static constexpr std::string_view kClosing[] = {"endif",         "endfor", "endset", "endmacro",
                                                    "endgeneration", "else",   "elif"};
    if (std::find(std::begin(kClosing), std::end(kClosing), tag.text) != std::end(kClosing))
      refuse_at(tag.at, fmt::format("unexpected tag '{}'", tag.text));
    refuse_at(tag.at, fmt::format("tag '{}' is not supported", tag.text));
  }

  std::unique_ptr<Stmt> if_statement(size_t at) {
    auto stmt = statement(Stmt::kIf, at);
    while (true) {
      ExprPtr condition = expression(true);
      block_end();
      stmt->branches.emplace_back(std::move(condition), block({"elif", "else", "endif"}));
      ++next_;
      Token tag = take();
      if (tag.text == "elif") continue;
      block_end();
      if (tag.text == "endif") return stmt;
      stmt->branches.emplace_back(nullptr, block({"endif"}));
      closing();
      return stmt;
    }
  }

  std::unique_ptr<Stmt> for_statement(size_t at) {
    auto stmt = statement(Stmt::kFor, at);
    bool bracket = skip_op("(");
    do stmt->targets.push_back(want_target());
    while (skip_op(","));
    if (bracket) want_op(")");
    if (!skip_name("in")) refuse(fmt::format("wanted 'in', found {}", shown(here())));
    stmt->value = tuple_or_expression(false);
    if (skip_name("if")) stmt->condition = expression(true);
    if (is_name("recursive")) refuse("'recursive' is not supported");
    block_end();
    ++loops_;
    stmt->body = block({"else", "endfor"});
    --loops_;
    if (peek(1).text == "else") {
      closing();
      stmt->otherwise = block({"endfor"});
    }
    closing();
    return stmt;
  }

  std::unique_ptr<Stmt> set_statement(size_t at) {
    auto stmt = statement(Stmt::kSet, at);
    stmt->targets.push_back(want_target());
    if (skip_op(".")) {
      stmt->attribute = true;
      stmt->targets.push_back(want(Token::kName, "a name").text);
    } else {
      while (skip_op(",")) stmt->targets.push_back(want_target());
    }
    if (skip_op("=")) {
      stmt->value = tuple_or_expression();
      block_end();
      return stmt;
    }
    if (stmt->attribute || stmt->targets.size() > 1) refuse(fmt::format("wanted '=', found {}", shown(here())));
    stmt->kind = Stmt::kSetBlock;
    if (is_op("|")) {
      stmt->value = node(Expr::kName, here().at);
      stmt->value->name = "\nblock";  // no template can name it
      while (is_op("|")) stmt->value = filter(std::move(stmt->value));
    }
    block_end();
    stmt->body = block({"endset"});
    closing();
    return stmt;
  }

  std::unique_ptr<Stmt> macro_statement(size_t at) {
    auto stmt = statement(Stmt::kMacro, at);
    stmt->text = want_target();
    want_op("(");
    while (!is_op(")")) {
      stmt->targets.push_back(want_target());
      if (skip_op("="))
        stmt->defaults.push_back(expression(true));
      else if (!stmt->defaults.empty())
        refuse("a parameter without default follows one with default");
      if (!skip_op(",")) break;
    }
    want_op(")");
    block_end();
    size_t outer_loops = std::exchange(loops_, 0);
    ++macros_;
    stmt->body = block({"endmacro"});
    --macros_;
    loops_ = outer_loops;
    closing();
    return stmt;
  }

  // ---- expressions, from weak to strong
  ExprPtr tuple_or_expression(bool with_condition = true) {
    size_t at = here().at;
    ExprPtr first = expression(with_condition);
    if (!is_op(",")) return first;
    ExprPtr tuple = node_of(Expr::kList, at, std::move(first));
    tuple->flag = true;
    while (skip_op(",")) {
      if (here().kind == Token::kBlockEnd || here().kind == Token::kOutputEnd || is_op(")")) break;
      give(*tuple, expression(with_condition));
    }
    return tuple;
  }

  ExprPtr expression(bool with_condition) {
    Nesting nesting(*this);
    ExprPtr value = or_expression();
    while (with_condition && is_name("if")) {
      size_t at = take().at;
      ExprPtr condition = or_expression();
      ExprPtr otherwise = skip_name("else") ? expression(true) : nullptr;
      value = node_of(Expr::kCondition, at, std::move(condition), std::move(value), std::move(otherwise));
    }
    return value;
  }
  ExprPtr or_expression() {
    ExprPtr left = and_expression();
    while (is_name("or")) {
      size_t at = take().at;
      left = node_of(Expr::kOr, at, std::move(left), and_expression());
    }
    return left;
  }
  ExprPtr and_expression() {
    ExprPtr left = not_expression();
    while (is_name("and")) {
      size_t at = take().at;
      left = node_of(Expr::kAnd, at, std::move(left), not_expression());
    }
    return left;
  }
  ExprPtr not_expression() {
    if (!is_name("not")) return comparison();
    Nesting nesting(*this);
    size_t at = take().at;
    return node_of(Expr::kNot, at, not_expression());
  }

  ExprPtr comparison() {
    size_t at = here().at;
    ExprPtr first = additive();
    ExprPtr chain;
    while (true) {
      std::string op;
      static constexpr std::string_view kOps[] = {"==", "!=", "<=", ">=", "<", ">"};
      if (here().kind == Token::kOperator && std::find(std::begin(kOps), std::end(kOps), here().text) != std::end(kOps))
        op = take().text;
      else if (skip_name("in"))
        op = "in";
      else if (is_name("not") && peek(1).kind == Token::kName && peek(1).text == "in")
        op = "not in", next_ += 2;
      else
        break;
      if (!chain) chain = node_of(Expr::kCompare, at, std::move(first));
      chain->operators.push_back(op);
      give(*chain, additive());
    }
    return chain ? std::move(chain) : std::move(first);
  }

  template <typename Next>
  ExprPtr left_chain(std::initializer_list<std::string_view> ops, Next next) {
    ExprPtr left = next();
    while (here().kind == Token::kOperator && std::find(ops.begin(), ops.end(), here().text) != ops.end()) {
      Token op = take();
      left = node_of(Expr::kBinary, op.at, std::move(left), next());
      left->name = op.text;
    }
    return left;
  }
  ExprPtr additive() {
    return left_chain({"+", "-"}, [&] { return concatenation(); });
  }
  ExprPtr concatenation() {
    return left_chain({"~"}, [&] { return product(); });
  }
  ExprPtr product() {
    return left_chain({"*", "/", "//", "%"}, [&] { return power(); });
  }
  ExprPtr power() {
    return left_chain({"**"}, [&] { return unary(true); });
  }

  ExprPtr unary(bool with_filter) {
    Nesting nesting(*this);
    ExprPtr value;
    if (is_op("-") || is_op("+")) {
      Token sign = take();
      value = node_of(Expr::kSign, sign.at, unary(false));
      value->flag = sign.text == "-";
    } else {
      value = primary();
    }
    value = postfix(std::move(value));
    while (with_filter) {
      if (is_op("|"))
        value = filter(std::move(value));
      else if (is_name("is"))
        value = test(std::move(value));
      else if (is_op("("))
        value = call(std::move(value));
      else
        break;
    }
    return value;
  }

  ExprPtr literal(size_t at, Value value) const {
    ExprPtr expr = node(Expr::kLiteral, at);
    expr->value = std::move(value);
    return expr;
  }

  ExprPtr number(const Token& token) const {
    const char* end = token.text.data() + token.text.size();
    if (token.kind == Token::kFloat) {
      double value = 0;
      if (std::from_chars(token.text.data(), end, value).ec != std::errc())
        refuse_at(token.at, "a number out of range");
      return literal(token.at, value);
    }
    int64_t value = 0;
    if (std::from_chars(token.text.data(), end, value).ec != std::errc())
      refuse_at(token.at, "an integer out of range");
    return literal(token.at, value);
  }

  ExprPtr primary() {
    Token token = here();
    if (token.kind == Token::kInteger || token.kind == Token::kFloat) return number(take());
    if (token.kind == Token::kString) {
      std::string text = take().text;
      while (here().kind == Token::kString) text += take().text;
      return literal(token.at, std::move(text));
    }
    if (token.kind == Token::kName) return name(take());
    if (skip_op("(")) return bracketed(token.at);
    if (skip_op("[")) return list(token.at);
    if (skip_op("{")) return dict(token.at);
    refuse(fmt::format("wanted a value, found {}", shown(token)));
  }

  ExprPtr name(const Token& token) const {
    if (token.text == "true" || token.text == "True") return literal(token.at, true);
    if (token.text == "false" || token.text == "False") return literal(token.at, false);
    if (token.text == "none" || token.text == "None") return literal(token.at, Value());
    static constexpr std::string_view kWords[] = {"and", "or", "in", "is", "if", "else", "not"};
    if (std::find(std::begin(kWords), std::end(kWords), token.text) != std::end(kWords))
      refuse_at(token.at, fmt::format("wanted a value, found '{}'", token.text));
    static constexpr std::string_view kLacking[] = {"self",   "super",  "caller", "varargs",
                                                    "kwargs", "lipsum", "cycler", "joiner"};
    bool lacking = std::find(std::begin(kLacking), std::end(kLacking), token.text) != std::end(kLacking);
    if (lacking && (macros_ > 0 || is_op("("))) refuse_at(token.at, fmt::format("'{}' is not supported", token.text));
    ExprPtr expr = node(Expr::kName, token.at);
    expr->name = token.text;
    return expr;
  }

  ExprPtr bracketed(size_t at) {
    if (skip_op(")")) {
      ExprPtr empty = node(Expr::kList, at);
      empty->flag = true;
      return empty;
    }
    ExprPtr value = tuple_or_expression();
    want_op(")");
    return value;
  }
  ExprPtr list(size_t at) {
    ExprPtr expr = node(Expr::kList, at);
    while (!is_op("]")) {
      give(*expr, expression(true));
      if (!skip_op(",")) break;
    }
    want_op("]");
    return expr;
  }
  ExprPtr dict(size_t at) {
    ExprPtr expr = node(Expr::kDict, at);
    while (!is_op("}")) {
      give(*expr, expression(true));
      want_op(":");
      give(*expr, expression(true));
      if (!skip_op(",")) break;
    }
    want_op("}");
    return expr;
  }

  ExprPtr postfix(ExprPtr value) {
    while (true) {
      if (is_op("(")) {
        value = call(std::move(value));
      } else if (is_op(".")) {
        size_t at = take().at;
        if (here().kind == Token::kInteger) {
          value = node_of(Expr::kSubscript, at, std::move(value), number(take()));
        } else {
          value = node_of(Expr::kAttribute, at, std::move(value));
          value->name = want(Token::kName, "a name").text;
        }
      } else if (is_op("[")) {
        value = bracket_access(std::move(value), take().at);
      } else {
        return value;
      }
    }
  }

  ExprPtr bracket_access(ExprPtr value, size_t at) {
    ExprPtr parts[3];
    size_t count = 0;
    bool sliced = false;
    if (!is_op(":")) parts[0] = expression(true);
    while (skip_op(":")) {
      sliced = true;
      if (++count > 2) refuse("wanted ']', found ':'");
      if (!is_op(":") && !is_op("]")) parts[count] = expression(true);
    }
    if (is_op(",")) refuse("subscripts by several values are not supported");
    want_op("]");
    if (!sliced) return node_of(Expr::kSubscript, at, std::move(value), std::move(parts[0]));
    return node_of(Expr::kSlice, at, std::move(value), std::move(parts[0]), std::move(parts[1]), std::move(parts[2]));
  }

  void arguments(Expr& expr) {
    want_op("(");
    while (!is_op(")")) {
      if (is_op("*") || is_op("**")) refuse("unpacked arguments are not supported");
      if (here().kind == Token::kName && peek(1).kind == Token::kOperator && peek(1).text == "=") {
        std::string key = take().text;
        ++next_;
        ExprPtr value = expression(true);
        expr.depth = std::max(expr.depth, value->depth + 1);
        expr.named.emplace_back(std::move(key), std::move(value));
      } else {
        if (!expr.named.empty()) refuse("a positional argument follows a named one");
        give(expr, expression(true));
      }
      if (!skip_op(",")) break;
    }
    want_op(")");
  }

  ExprPtr call(ExprPtr callee) {
    ExprPtr expr = node_of(Expr::kCall, here().at, std::move(callee));
    arguments(*expr);
    return expr;
  }
  ExprPtr filter(ExprPtr input) {
    want_op("|");
    Token name = want(Token::kName, "a filter");
    ExprPtr expr = node_of(Expr::kFilter, name.at, std::move(input));
    expr->name = name.text;
    expr->filter = find_filter(name.text);
    if (!expr->filter) refuse_at(name.at, fmt::format("filter '{}' is not supported", name.text));
    if (is_op("(")) arguments(*expr);
    return expr;
  }
  ExprPtr test(ExprPtr input) {
    ++next_;
    bool negated = skip_name("not");
    Token name = want(Token::kName, "a test");
    ExprPtr expr = node_of(Expr::kTest, name.at, std::move(input));
    expr->name = name.text;
    expr->flag = negated;
    expr->test = find_test(name.text);
    if (!expr->test) refuse_at(name.at, fmt::format("test '{}' is not supported", name.text));
    if (is_op("(")) {
      arguments(*expr);
      return expr;
    }
    bool word = here().kind == Token::kName && !is_name("else") && !is_name("or") && !is_name("and") &&
                !is_name("if") && !is_name("in") && !is_name("not");
    if (is_name("is")) refuse("tests cannot be chained by 'is'");
    bool value = here().kind == Token::kString || here().kind == Token::kInteger || here().kind == Token::kFloat ||
                 is_op("[") || is_op("{");
    if (word || value) give(*expr, postfix(primary()));
    return expr;
  }

  const TemplateSource& source_;
  std::vector<Token> tokens_;
  size_t next_ = 0;
  size_t nesting_ = 0;
  size_t loops_ = 0;
  size_t macros_ = 0;
};

}  // namespace

Body parse_template(const TemplateSource& source) {
  return Parser(source).run();
}

}  // namespace sf::text
