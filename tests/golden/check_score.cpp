// SPDX-License-Identifier: Apache-2.0
// Answers with verdicts of people and of public graders.
#include <fmt/core.h>

#include "golden.h"
#include "score/rule.h"

namespace sf::golden {
namespace {

// A column a rule; `right` is the project's own.
Outcome check_table(const Case& c) {
  constexpr std::pair<const char*, const char*> kColumns[] = {{"right", "aime-v1"},
                                                              {"lm-eval-aime", "lm-eval-aime"},
                                                              {"verl-math-reward", "verl-math-reward"},
                                                              {"verl-math-dapo", "verl-math-dapo"},
                                                              {"verl-math-dapo-old", "verl-math-dapo-old"}};
  size_t cells = 0;
  for (const auto& [column, name] : kColumns) {
    score::Rule rule = score::make_rule(name);
    for (const Json& row : c.json.at("rows").as_array()) {
      score::Verdict verdict = rule.score(row.at("gold").as_string(), {.text = row.at("response").as_string()});
      if (verdict.correct() != row.at(column).as_bool())
        return Outcome::failed(fmt::format("row {}, {}: {} ({})", row.at("row").as_int(), name,
                                           score::name_of(verdict.outcome), verdict.reason));
      ++cells;
    }
  }
  return {Outcome::kPassed, fmt::format("{} verdicts", cells)};
}

struct Exception {
  size_t row;
  const char* policy;
};

// Rows where rule math does not say what a person would.
constexpr Exception kMathPolicies[] = {
    {50, "a box that was never closed is no answer: what it would have said is unknown"},
    {89, "a thinking part that never ended is no answer"},
};

// Rows with an integer gold of 0 to 999 where aime-v1 does not say what a person would.
constexpr Exception kAimePolicies[] = {
    {22, "#### states nothing: only a box, answer is, answer: and answer = do"},
    {48, "a number without a statement is no answer"},
    {50, "a box that was never closed is no answer"},
    {56, "a full-width colon makes no statement"},
    {58, "a statement ends with its line"},
    {64, "markup other than bold is no part of an integer"},
    {75, "a box overrules an answer line"},
    {76, "a box overrules an answer line"},
    {77, "the last answer line counts, whatever it says"},
    {83, "sums are not worked out"},
    {84, "products are not worked out"},
    {89, "a thinking part that never ended is no answer"},
    {92, "a unit with a power is not taken off"},
    {93, "an approximation is no integer"},
};

template <size_t n>
const char* policy_of(const Exception (&list)[n], size_t row) {
  for (const Exception& one : list)
    if (one.row == row) return one.policy;
  return nullptr;
}

score::Verdict scored(const score::Rule& rule, const Json& row) {
  return rule.score(row.at("gold").as_string(), {.text = row.at("response").as_string()});
}

// Every row that differs from `intended` is listed with its policy, and every listed one differs.
template <size_t n>
std::string against_people(const score::Rule& rule, const Json::Array& rows, const Exception (&list)[n],
                           size_t& equal) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rule.refuses_gold(rows[i].at("gold").as_string()).empty()) continue;
    score::Verdict verdict = scored(rule, rows[i]);
    bool same = verdict.correct() == (rows[i].at("intended").as_int() == 1);
    equal += same;
    if (same != (policy_of(list, i) == nullptr))
      return fmt::format("{}, row {}: {} ({}), {}", rule.name(), i, score::name_of(verdict.outcome), verdict.reason,
                         same ? "but it is listed as a difference" : "which no listed policy explains");
  }
  return "";
}

// Empty if a public grader's verdicts are reproduced; counts rows left undecided.
std::string against_grader(const Json::Array& rows, const char* name, const char* column, size_t& undecided) {
  score::Rule rule = score::make_rule(name);
  for (size_t i = 0; i < rows.size(); ++i) {
    score::Verdict verdict = scored(rule, rows[i]);
    const Json& stored = rows[i].at("verdict").at(column);
    bool wanted = stored.is_array() ? stored.as_array()[0].as_bool() : stored.as_double() > 0;
    undecided += verdict.outcome == score::Outcome::kUndecided;
    if (verdict.outcome != score::Outcome::kUndecided && verdict.correct() != wanted)
      return fmt::format("{}, row {}: {} ({})", name, i, score::name_of(verdict.outcome), verdict.reason);
  }
  return "";
}

Outcome check_rows(const Case& c) {
  const Json::Array& rows = c.json.at("rows").as_array();
  score::Rule math = score::make_rule("math");
  size_t equal = 0, aime_equal = 0, undecided = 0, shared = 0, agreed = 0;
  std::string difference = against_people(math, rows, kMathPolicies, equal);
  if (difference.empty()) difference = against_people(score::make_rule("aime-v1"), rows, kAimePolicies, aime_equal);
  constexpr std::pair<const char*, const char*> kGraders[] = {{"verl-math-dapo", "verl_math_dapo"},
                                                              {"verl-math-reward", "verl_math_reward"},
                                                              {"verl-prime-math", "verl_prime_math"}};
  for (const auto& [name, column] : kGraders)
    if (difference.empty()) difference = against_grader(rows, name, column, undecided);
  if (!difference.empty()) return Outcome::failed(difference);
  for (const Json& row : rows) {
    bool peer = row.at("verdict").at("math_verify_default").as_int() == 1;
    if (peer != (row.at("intended").as_int() == 1)) continue;
    ++shared;
    agreed += scored(math, row).correct() == peer;
  }
  std::string detail = fmt::format(
      "math is as intended on {} of {}, as math-verify on {} of the {} where that is as intended; {} undecided", equal,
      rows.size(), agreed, shared, undecided);
  bool enough = equal * 100 >= rows.size() * 98 && agreed * 100 >= shared * 99;
  return enough ? Outcome{Outcome::kPassed, detail} : Outcome::failed(detail);
}

const bool registered = add("score_table", check_table) && add("math_score", check_rows);

}  // namespace
}  // namespace sf::golden
