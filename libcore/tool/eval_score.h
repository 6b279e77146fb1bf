// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <filesystem>

#include "app/command.h"
#include "score/rows.h"
#include "score/rule.h"

namespace sf::tool {

// `sf-eval score ANSWERS --questions FILE --rule NAME`: verdicts of answers. Prints the summary; -o keeps every
// verdict.
// --explain ID[/SAMPLE] shows one answer instead. Exit status 1 if pass@1 is below --fail-under.
int eval_score(app::Invocation& invocation);

// The rule of --rule and its options.
score::Rule rule_of(const app::Invocation& invocation);
// kData if the rule refuses the gold.
void check_gold(const score::Rule& rule, const score::Question& question);
// Verdicts of a file of answers, published as `out`, by the options of `score` that the verb has.
void score_into(app::Invocation& invocation, const std::filesystem::path& answers, const std::filesystem::path& out);

// "0.6" of --fail-under; kUsage unless it is a share.
double share_option(const app::Invocation& invocation, const std::string& option);
// A whole number of an option; kUsage unless it is one in [low, high].
int64_t whole_option(const app::Invocation& invocation, const std::string& option, int64_t low, int64_t high);

}  // namespace sf::tool
