// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <filesystem>
#include <string>

#include "app/command.h"

namespace sf::tool {

// `sf-eval merge DIR -o FILE`: verdicts of all shards of a set as one file, as if scored at once. Gaps, overlaps and
// shards of different rules, questions or steps are refused.
int eval_merge(app::Invocation& invocation);

struct Merged {
  size_t shards = 0, questions = 0, answers = 0;
};
// The work of it: the shards of directory `dir` into `out` (--plan: checked alone).
Merged merge_shards(app::Invocation& invocation, const std::string& dir, const std::filesystem::path& out);

}  // namespace sf::tool
