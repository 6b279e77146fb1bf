// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "app/command.h"

namespace sf::tool {

// `sf-eval merge DIR -o FILE`: verdicts of all shards of a set as one file, as if scored at once. Gaps, overlaps and
// shards of different rules, questions or steps are refused.
int eval_merge(app::Invocation& invocation);

}  // namespace sf::tool
