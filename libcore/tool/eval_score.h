// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "app/command.h"

namespace sf::tool {

// `sf-eval score ANSWERS --questions FILE --rule NAME`: verdicts of answers. Prints the summary; -o keeps every
// verdict.
// --explain ID[/SAMPLE] shows one answer instead. Exit status 1 if pass@1 is below --fail-under.
int eval_score(app::Invocation& invocation);

// "0.6" of --fail-under; kUsage unless it is a share.
double share_option(const app::Invocation& invocation, const std::string& option);
// A whole number of an option; kUsage unless it is one in [low, high].
int64_t whole_option(const app::Invocation& invocation, const std::string& option, int64_t low, int64_t high);

}  // namespace sf::tool
