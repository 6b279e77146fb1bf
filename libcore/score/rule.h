// SPDX-License-Identifier: Apache-2.0
// Rules that judge answers. A rule has a name, a version and a digest over its name, version, tables and options; two
// results may be compared only if their digests are equal. Pure: no files, no clock; the same answer gets the same
// verdict everywhere.
//
// aime-v1             integers 0..999, the project's own rule (default)
// math                LaTeX equality: numbers, roots, sets, intervals, tuples, matrices, units, percent, text
// exact               the whole visible text, white space off its ends
// regex               what a given pattern matches last (its first group, if it has one)
// gsm8k               the number after the last "####", else the last number
// lm-eval-aime        lm-evaluation-harness' tasks aime*, as they are
// verl-math-dapo      verl's math_dapo with the box after a missing "Answer:" line
// verl-math-dapo-old  the same without
// verl-math-reward    verl's math_reward
// verl-prime-math     verl's prime_math; undecided where it would ask a computer algebra system and ours has no answer
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "score/verdict.h"

namespace sf::score {

struct RuleOptions {
  bool allow_unfinished = false;  // aime-v1, math: grade a thinking part that never ended
  bool last_number = false;       // aime-v1: the last number where nothing states an answer
  std::string pattern;            // regex
  // Finds what `pattern` matches last, its first group if it has one; given by whoever owns an engine of regular
  // expressions. Throws Error where the engine gives up on a text.
  std::function<std::optional<Span>(std::string_view)> find;
};

class Rule {
 public:
  using Judge = std::function<Verdict(std::string_view gold, const Answer& answer)>;
  using GoldCheck = std::function<std::string(std::string_view gold)>;
  struct Parts {
    std::string name;
    int version = 1;
    std::string tables;  // every constant that decides a verdict, and the options that are on
    Judge judge;
    GoldCheck check_gold;                                   // empty: every gold will do
    std::function<bool(std::string_view)> reads_gold = {};  // empty: every gold is read
  };
  explicit Rule(Parts parts);

  const std::string& name() const { return parts_.name; }
  int version() const { return parts_.version; }
  const std::string& digest() const { return digest_; }  // SHA-256
  Verdict score(std::string_view gold, const Answer& answer) const { return parts_.judge(gold, answer); }
  // Why `gold` can be no answer of this rule ("not an integer of 0 to 999"), or empty.
  std::string refuses_gold(std::string_view gold) const;
  // Whether more than the gold's own text can be found equal to it.
  bool reads_gold(std::string_view gold) const { return !parts_.reads_gold || parts_.reads_gold(gold); }

 private:
  Parts parts_;
  std::string digest_;
};

// kUsage naming the rules there are if `name` is none, or if an option does not belong to it.
Rule make_rule(std::string_view name, const RuleOptions& options = {});
const std::vector<std::string>& rule_names();

}  // namespace sf::score
