// SPDX-License-Identifier: Apache-2.0
// Rules of public graders, reproduced with their quirks so that numbers made with them can be compared.
#pragma once
#include <string>
#include <string_view>

#include "score/rule.h"

namespace sf::score {

Rule lm_eval_aime_rule();
Rule verl_math_reward_rule();
// `box`: where no "Answer:" line stands, the last box of the last 100 characters counts (the newer version).
Rule verl_math_dapo_rule(bool box);
Rule verl_prime_math_rule();

// math_dapo's normal form of an answer.
std::string dapo_normal(std::string_view answer);

// prime_math's extraction: the text it would grade.
std::string prime_extracted(std::string_view response);

}  // namespace sf::score
