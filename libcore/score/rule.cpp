// SPDX-License-Identifier: Apache-2.0
#include "score/rule.h"

#include <fmt/format.h>

#include <array>

#include "base/error.h"
#include "base/hash.h"
#include "score/aime.h"
#include "score/math_rule.h"
#include "score/plain_rules.h"
#include "score/public_rules.h"

namespace sf::score {
namespace {

constexpr std::array<std::string_view, kOutcomes> kNames = {"correct",    "wrong",     "out_of_range", "no_answer",
                                                            "unfinished", "truncated", "refused",      "undecided"};

Rule make(std::string_view name, const RuleOptions& options) {
  if (name == "aime-v1") return aime_rule(options);
  if (name == "math") return math_rule(options);
  if (name == "exact") return exact_rule();
  if (name == "regex") return regex_rule(options);
  if (name == "gsm8k") return gsm8k_rule();
  if (name == "lm-eval-aime") return lm_eval_aime_rule();
  if (name == "verl-math-dapo") return verl_math_dapo_rule(true);
  if (name == "verl-math-dapo-old") return verl_math_dapo_rule(false);
  if (name == "verl-math-reward") return verl_math_reward_rule();
  if (name == "verl-prime-math") return verl_prime_math_rule();
  fail(Exit::kUsage, "there is no rule {}; there are {}", name, fmt::join(rule_names(), ", "));
}

}  // namespace

std::string_view name_of(Outcome outcome) {
  return kNames[static_cast<size_t>(outcome)];
}

std::optional<Outcome> outcome_from_name(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<Outcome>(i);
  return std::nullopt;
}

Rule::Rule(Parts parts) : parts_(std::move(parts)) {
  digest_ = sha256_hex(fmt::format("{} {}\n{}", parts_.name, parts_.version, parts_.tables));
}

std::string Rule::refuses_gold(std::string_view gold) const {
  return parts_.check_gold ? parts_.check_gold(gold) : "";
}

Rule make_rule(std::string_view name, const RuleOptions& options) {
  SF_CHECK(!options.allow_unfinished || name == "aime-v1" || name == "math", Exit::kUsage,
           "--allow-unfinished belongs to the rules aime-v1 and math");
  SF_CHECK(!options.last_number || name == "aime-v1", Exit::kUsage, "--last-number belongs to the rule aime-v1");
  SF_CHECK(options.pattern.empty() || name == "regex", Exit::kUsage, "--pattern belongs to the rule regex");
  return make(name, options);
}

const std::vector<std::string>& rule_names() {
  static const std::vector<std::string> names = {"aime-v1",
                                                 "math",
                                                 "exact",
                                                 "regex",
                                                 "gsm8k",
                                                 "lm-eval-aime",
                                                 "verl-math-dapo",
                                                 "verl-math-dapo-old",
                                                 "verl-math-reward",
                                                 "verl-prime-math"};
  return names;
}

}  // namespace sf::score
