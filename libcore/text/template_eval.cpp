// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/fault.h"
#include "text/template.h"
#include "text/template_ast.h"
#include "text/template_lexer.h"

namespace sf::text {
namespace {

// Names of one block; a macro keeps the scope it was defined in.
struct Scope {
  std::shared_ptr<Scope> outer;
  std::vector<std::pair<std::string, Value>> names;

  void set(const std::string& name, Value value) {
    for (auto& [known, old] : names) {
      if (known != name) continue;
      old = std::move(value);
      return;
    }
    names.emplace_back(name, std::move(value));
  }
  const Value* find(const std::string& name) const {
    for (const Scope* scope = this; scope; scope = scope->outer.get())
      for (const auto& [known, value] : scope->names)
        if (known == name) return &value;
    return nullptr;
  }
};

constexpr size_t kMaxEvaluationDepth = 1000;

enum class Flow { kNext, kBreak, kContinue };

class Evaluator {
 public:
  Evaluator(const TemplateSource& source, const Moment& now) : runtime_{source, now} {}
  // Macros and scopes hold each other, a namespace may hold itself: both are emptied here.
  ~Evaluator() {
    for (auto& scope : captured_) scope->names.clear();
    for (auto& space : runtime_.namespaces) space->members.items.clear();
  }

  std::string run(const Body& body, const Json& variables) {
    auto globals = std::make_shared<Scope>();
    for (const auto& [name, function] : global_functions()) globals->set(name, function);
    for (const auto& [name, value] : variables.as_object()) globals->set(name, Value::from_json(value));
    auto top = std::make_shared<Scope>();
    top->outer = globals;
    std::string out;
    render(body, top, out);
    return out;
  }

 private:
  // Every level of blocks, expressions and macro calls costs stack.
  struct Depth {
    Runtime& runtime;
    explicit Depth(Runtime& r) : runtime(r) {
      if (r.depth >= kMaxEvaluationDepth) r.wrong("the template calls itself too deeply");
      ++r.depth;
    }
    ~Depth() { --runtime.depth; }
  };

  // ---- statements
  Flow render(const Body& body, const std::shared_ptr<Scope>& scope, std::string& out) {
    for (const auto& stmt : body) {
      Flow flow = render(*stmt, scope, out);
      if (flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  void write(std::string& out, std::string_view text) {
    runtime_.check_size(out.size() + text.size());
    runtime_.charge_bytes(text.size());
    out += text;
  }

  Flow render(const Stmt& stmt, const std::shared_ptr<Scope>& scope, std::string& out) {
    runtime_.at = stmt.at;
    runtime_.charge(1);
    Depth depth(runtime_);
    switch (stmt.kind) {
      case Stmt::kText:
        write(out, stmt.text);
        break;
      case Stmt::kOutput:
        write(out, print_value(runtime_, eval(*stmt.value, *scope)));
        break;
      case Stmt::kIf:
        for (const auto& [condition, body] : stmt.branches)
          if (!condition || eval(*condition, *scope).truthy()) return render(body, scope, out);
        break;
      case Stmt::kFor:
        return loop(stmt, scope, out);
      case Stmt::kSet:
        assign(stmt, *scope);
        break;
      case Stmt::kSetBlock:
        set_block(stmt, scope);
        break;
      case Stmt::kMacro:
        scope->set(stmt.text, macro(stmt, scope));
        break;
      case Stmt::kBlock:
        return render(stmt.body, scope, out);
      case Stmt::kBreak:
        return Flow::kBreak;
      case Stmt::kContinue:
        return Flow::kContinue;
    }
    return Flow::kNext;
  }

  void unpack(const std::vector<std::string>& targets, const Value& value, Scope& scope, size_t at) {
    if (targets.size() == 1) return scope.set(targets[0], value);
    runtime_.at = at;
    auto parts = iterate(runtime_, value);
    if (parts->items.size() != targets.size())
      runtime_.wrong(fmt::format("wanted {} values to unpack, found {}", targets.size(), parts->items.size()));
    for (size_t i = 0; i < targets.size(); ++i) scope.set(targets[i], parts->items[i]);
  }

  void assign(const Stmt& stmt, Scope& scope) {
    Value value = eval(*stmt.value, scope);
    if (!stmt.attribute) return unpack(stmt.targets, value, scope, stmt.at);
    runtime_.at = stmt.at;
    const Value* target = scope.find(stmt.targets[0]);
    if (!target || !target->is_namespace())
      runtime_.wrong(fmt::format("'{}' is no namespace, so its attributes cannot be set", stmt.targets[0]));
    target->as_namespace()->members.set(stmt.targets[1], std::move(value));
  }

  void set_block(const Stmt& stmt, const std::shared_ptr<Scope>& scope) {
    auto inner = std::make_shared<Scope>();
    inner->outer = scope;
    std::string text;
    render(stmt.body, inner, text);
    Value value(std::move(text));
    if (stmt.value) {
      inner->set("\nblock", std::move(value));
      value = eval(*stmt.value, *inner);
    }
    scope->set(stmt.targets[0], std::move(value));
  }

  std::shared_ptr<const ListValue> filtered(const Stmt& stmt, const std::shared_ptr<Scope>& scope) {
    Value source = eval(*stmt.value, *scope);
    runtime_.at = stmt.value->at;
    auto items = iterate(runtime_, source);
    if (!stmt.condition) return items;
    auto kept = std::make_shared<ListValue>();
    Scope inner{scope, {}};
    for (const Value& item : items->items) {
      unpack(stmt.targets, item, inner, stmt.at);
      if (eval(*stmt.condition, inner).truthy()) kept->items.push_back(item);
    }
    kept->depth = items->depth;
    return kept;
  }

  Flow loop(const Stmt& stmt, const std::shared_ptr<Scope>& scope, std::string& out) {
    auto state = std::make_shared<LoopValue>();
    state->items = filtered(stmt, scope);
    Flow flow = Flow::kNext;
    for (size_t i = 0; i < state->items->items.size() && flow != Flow::kBreak; ++i) {
      state->index = i;
      runtime_.charge(4);
      auto inner = std::make_shared<Scope>();
      inner->outer = scope;
      inner->set("loop", state);
      unpack(stmt.targets, state->items->items[i], *inner, stmt.at);
      flow = render(stmt.body, inner, out);
    }
    state->changed.clear();  // it may hold the loop itself
    if (state->items->items.empty()) return render(stmt.otherwise, scope, out);
    return Flow::kNext;
  }

  Value macro(const Stmt& stmt, const std::shared_ptr<Scope>& scope) {
    if (std::find(captured_.begin(), captured_.end(), scope) == captured_.end()) captured_.push_back(scope);
    auto function = std::make_shared<FunctionValue>();
    function->name = stmt.text;
    function->call = [this, &stmt, scope](Runtime&, Args& args) { return call_macro(stmt, scope, args); };
    return Value::FunctionPtr(std::move(function));
  }

  Value call_macro(const Stmt& stmt, const std::shared_ptr<Scope>& scope, Args& args) {
    if (args.positional.size() > stmt.targets.size())
      runtime_.wrong(fmt::format("macro '{}' takes at most {} arguments, {} were given", stmt.text, stmt.targets.size(),
                                 args.positional.size()));
    auto inner = std::make_shared<Scope>();
    inner->outer = scope;
    for (auto& [name, value] : args.named) {
      auto target = std::find(stmt.targets.begin(), stmt.targets.end(), name);
      if (target == stmt.targets.end() ||
          target - stmt.targets.begin() < static_cast<ptrdiff_t>(args.positional.size()))
        runtime_.wrong(fmt::format("macro '{}' has no further argument '{}'", stmt.text, name));
      inner->set(name, std::move(value));
    }
    size_t first_default = stmt.targets.size() - stmt.defaults.size();
    for (size_t i = 0; i < stmt.targets.size(); ++i) {
      const std::string& name = stmt.targets[i];
      if (i < args.positional.size())
        inner->set(name, std::move(args.positional[i]));
      else if (std::any_of(args.named.begin(), args.named.end(),
                           [&](const auto& given) { return given.first == name; }))
        continue;
      else if (i >= first_default)
        inner->set(name, eval(*stmt.defaults[i - first_default], *inner));
      else
        inner->set(name, Value::undefined(fmt::format("parameter '{}' was not provided", name)));
    }
    std::string out;
    render(stmt.body, inner, out);
    return out;
  }

  // ---- expressions
  Value arg(const Expr& expr, size_t i, const Scope& scope) {
    return expr.args[i] ? eval(*expr.args[i], scope) : Value();
  }

  Args arguments(const Expr& expr, const Scope& scope) {
    Args args;
    for (size_t i = 1; i < expr.args.size(); ++i) args.positional.push_back(eval(*expr.args[i], scope));
    for (const auto& [name, value] : expr.named) args.named.emplace_back(name, eval(*value, scope));
    runtime_.at = expr.at;
    return args;
  }

  Value eval(const Expr& expr, const Scope& scope) {
    runtime_.at = expr.at;
    runtime_.charge(1);
    Depth depth(runtime_);
    switch (expr.kind) {
      case Expr::kLiteral:
        return expr.value;
      case Expr::kName: {
        const Value* found = scope.find(expr.name);
        return found ? *found : Value::undefined(fmt::format("'{}' is undefined", expr.name));
      }
      case Expr::kList: {
        std::vector<Value> items;
        for (const auto& item : expr.args) items.push_back(eval(*item, scope));
        return Value::list(std::move(items), expr.flag);
      }
      case Expr::kDict:
        return dict(expr, scope);
      case Expr::kNot:
        return !arg(expr, 0, scope).truthy();
      case Expr::kAnd: {
        Value left = arg(expr, 0, scope);
        return left.truthy() ? arg(expr, 1, scope) : left;
      }
      case Expr::kOr: {
        Value left = arg(expr, 0, scope);
        return left.truthy() ? left : arg(expr, 1, scope);
      }
      case Expr::kCompare:
        return compare_chain(expr, scope);
      case Expr::kCondition:
        if (arg(expr, 0, scope).truthy()) return arg(expr, 1, scope);
        return expr.args[2] ? eval(*expr.args[2], scope)
                            : Value::undefined("the condition failed and there is no else");
      default:
        return eval_operation(expr, scope);
    }
  }

  Value eval_operation(const Expr& expr, const Scope& scope) {
    Value first = arg(expr, 0, scope);
    switch (expr.kind) {
      case Expr::kSign:
        return at(expr), negate(runtime_, first, expr.flag);
      case Expr::kAttribute:
        return at(expr), attribute(runtime_, first, expr.name);
      case Expr::kSubscript: {
        Value key = arg(expr, 1, scope);
        return at(expr), subscript(runtime_, first, key);
      }
      case Expr::kSlice: {
        Value start = arg(expr, 1, scope), stop = arg(expr, 2, scope), step = arg(expr, 3, scope);
        return at(expr), slice(runtime_, first, start, stop, step);
      }
      case Expr::kBinary: {
        Value second = arg(expr, 1, scope);
        return at(expr), binary(runtime_, expr.name, first, second);
      }
      case Expr::kCall:
        return call(expr, first, scope);
      case Expr::kFilter: {
        Args args = arguments(expr, scope);
        return expr.filter(runtime_, first, args);
      }
      case Expr::kTest: {
        Args args = arguments(expr, scope);
        return expr.test(runtime_, first, args) != expr.flag;
      }
      default:
        SF_ASSERT(false);
    }
    return {};
  }

  void at(const Expr& expr) { runtime_.at = expr.at; }

  Value dict(const Expr& expr, const Scope& scope) {
    DictValue members;
    for (size_t i = 0; i + 1 < expr.args.size(); i += 2) {
      Value key = eval(*expr.args[i], scope);
      if (!key.is_string()) at(*expr.args[i]), runtime_.unsupported(fmt::format("a key of type {}", key.type_name()));
      members.set(key.as_string(), eval(*expr.args[i + 1], scope));
    }
    return Value::dict(std::move(members));
  }

  Value compare_chain(const Expr& expr, const Scope& scope) {
    Value left = arg(expr, 0, scope);
    for (size_t i = 0; i < expr.operators.size(); ++i) {
      Value right = arg(expr, i + 1, scope);
      at(expr);
      if (!compare(runtime_, expr.operators[i], left, right)) return false;
      left = std::move(right);
    }
    return true;
  }

  Value call(const Expr& expr, const Value& callee, const Scope& scope) {
    const Expr& target = *expr.args[0];
    if (!callee.is_function()) {
      at(target);
      // A method that this subset lacks looks like an attribute that is not there.
      bool lacking = target.kind == Expr::kAttribute && callee.is_undefined();
      if (lacking) runtime_.unsupported(fmt::format("method '{}' ({})", target.name, callee.why_undefined()));
      runtime_.wrong(callee.is_undefined() ? callee.why_undefined()
                                           : fmt::format("{} object cannot be called", callee.type_name()));
    }
    Args args = arguments(expr, scope);
    return callee.as_function()->call(runtime_, args);
  }

  Runtime runtime_;
  std::vector<std::shared_ptr<Scope>> captured_;
};

}  // namespace

struct Template::Program {
  TemplateSource source;
  Body body;
};

Template::Template() = default;
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

Template Template::parse(std::string_view source, std::string_view origin) {
  Template result;
  result.program_ = std::make_unique<Program>();
  result.program_->source = {std::string(origin), normalise_template(source)};
  result.program_->body = parse_template(result.program_->source);
  return result;
}

std::string Template::render(const Json& variables, const Moment& now) const {
  return Evaluator(program_->source, now).run(program_->body, variables);
}

}  // namespace sf::text
