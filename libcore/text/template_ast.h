// SPDX-License-Identifier: Apache-2.0
// A parsed template. Offsets point into the normalised source.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/template_runtime.h"

namespace sf::text {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  enum Kind {
    kLiteral,    // value
    kName,       // name
    kList,       // args; `flag`: a tuple
    kDict,       // args: key, value, key, value, ...
    kAttribute,  // args[0].name
    kSubscript,  // args[0][args[1]]
    kSlice,      // args[0][args[1] : args[2] : args[3]], null where left out
    kCall,       // args[0](args[1..], named)
    kFilter,     // args[0] | filter(args[1..], named)
    kTest,       // args[0] is test(args[1..], named); `flag`: negated
    kNot,        // args[0]
    kSign,       // `flag`: minus
    kBinary,     // args[0] name args[1]
    kAnd,
    kOr,
    kCompare,    // args[0] operators[0] args[1] operators[1] args[2] ...
    kCondition,  // args[1] if args[0] else args[2] (null: undefined)
  };
  Kind kind = kLiteral;
  size_t at = 0;
  size_t depth = 1;  // of the tree below
  bool flag = false;
  std::string name;
  Value value;
  std::vector<ExprPtr> args;
  std::vector<std::pair<std::string, ExprPtr>> named;
  std::vector<std::string> operators;
  Filter filter = nullptr;
  Test test = nullptr;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct Stmt {
  enum Kind {
    kText,      // text
    kOutput,    // value
    kIf,        // branches: condition (null: else) and body
    kFor,       // targets in value [if condition]: body, otherwise: `otherwise`
    kSet,       // targets = value, or namespace attribute: targets[0].targets[1] with `attribute`
    kSetBlock,  // targets[0] = rendered body, through `value` if it is set (a filter of the placeholder argument)
    kMacro,     // name(parameters): body
    kBlock,     // body in place (generation marks)
    kBreak,
    kContinue,
  };
  Kind kind = kText;
  size_t at = 0;
  std::string text;  // text, or the macro's name
  ExprPtr value;
  ExprPtr condition;
  bool attribute = false;
  std::vector<std::string> targets;  // names; a macro's parameters
  std::vector<ExprPtr> defaults;     // of the last parameters
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body body;
  Body otherwise;
};

// kConfig with the place for what is wrong or outside the subset.
Body parse_template(const TemplateSource& source);

}  // namespace sf::text
