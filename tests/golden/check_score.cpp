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

const bool registered = add("score_table", check_table);

}  // namespace
}  // namespace sf::golden
