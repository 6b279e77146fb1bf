// SPDX-License-Identifier: Apache-2.0
// lm-evaluation-harness' aime tasks and verl's math_reward: a box or dollars, then the old string form.
#include "score/hendrycks.h"
#include "score/public_rules.h"

namespace sf::score {
namespace {

Span place(std::string_view text, std::string_view part) {
  if (part.empty()) return {};
  size_t begin = static_cast<size_t>(part.data() - text.data());
  return {begin, begin + part.size()};
}

Verdict compared(std::string_view text, std::string_view found, std::string_view gold, bool strict_slash) {
  bool equal = old_equal(found, gold, strict_slash);
  return {equal ? Outcome::kCorrect : Outcome::kWrong, place(text, found),
          old_normal(found, strict_slash).value_or(std::string(found)), equal ? "equal" : "differs"};
}

Verdict judge_lm_eval(std::string_view gold, const Answer& answer) {
  std::string_view found = answer.text;
  size_t first = found.find('$'), last = found.rfind('$');
  if (first != last) found = found.substr(first + 1, last - first - 1);
  OldBox box = old_last_box(answer.text);
  if (box.kind == OldBox::kBraced || box.kind == OldBox::kSpace) found = box.content;
  return compared(answer.text, found, gold, true);
}

Verdict judge_math_reward(std::string_view gold, const Answer& answer) {
  OldBox box = old_last_box(answer.text);
  if (box.kind == OldBox::kNone) return {Outcome::kNoAnswer, {}, "", "no_box"};
  if (box.kind == OldBox::kBroken) return {Outcome::kNoAnswer, {}, "", "broken_box"};
  return compared(answer.text, box.content, gold, false);
}

}  // namespace

Rule lm_eval_aime_rule() {
  return Rule({.name = "lm-eval-aime",
               .version = 1,
               .tables = "lm-evaluation-harness 0.4.13, tasks aime*",
               .judge = judge_lm_eval,
               .check_gold = {}});
}

Rule verl_math_reward_rule() {
  return Rule({.name = "verl-math-reward",
               .version = 1,
               .tables = "verl 0.9.1, math_reward",
               .judge = judge_math_reward,
               .check_gold = {}});
}

}  // namespace sf::score
