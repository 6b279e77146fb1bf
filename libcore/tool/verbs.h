// SPDX-License-Identifier: Apache-2.0
// Verbs that need no LibTorch, as the option tables of bin/ name them: from a call to an assembly and its result.
#pragma once
#include <string>
#include <vector>

#include "app/command.h"

namespace sf::tool {

int init_model_verb(app::Invocation& invocation);
std::vector<std::string> draft_algorithms();  // what init_draft_verb can be asked for
int init_draft_verb(app::Invocation& invocation);
int init_lora_verb(app::Invocation& invocation);
int shard_plan_verb(app::Invocation& invocation);  // 78: a rank needs more than there is
int shard_inspect_verb(app::Invocation& invocation);
int shard_verify_verb(app::Invocation& invocation);  // 1: something differs; each problem is one line on stdout
int shard_diff_verb(app::Invocation& invocation);    // 1: something differs
int shard_export_verb(app::Invocation& invocation);
int shard_import_verb(app::Invocation& invocation);
int shard_reshard_verb(app::Invocation& invocation);
int shard_merge_verb(app::Invocation& invocation);

}  // namespace sf::tool
