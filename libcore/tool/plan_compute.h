// SPDX-License-Identifier: Apache-2.0
// --plan of the verbs that compute, without LibTorch: inputs are opened and checked by the functions that a run uses,
// and nothing is written or computed. kConfig, with what would help, for what does not fit.
#pragma once
#include <string_view>

#include "app/command.h"
#include "arch/drafts.h"

namespace sf::tool {

// Applies speculation.draft_tokens, .tree_nodes and .tree_width. kConfig for a tree of a family whose proposals are a
// chain.
arch::Proposals proposals_of(config::Settings& settings, const arch::DraftFamily& family);

// The report of sf-shard plan, of a run with these files.
int train_draft_plan(app::Invocation& invocation, std::string_view family);
int train_grpo_plan(app::Invocation& invocation);
int train_sft_plan(app::Invocation& invocation);
// Rows, tokens and bytes, counted.
int capture_features_plan(app::Invocation& invocation);
int answers_plan(app::Invocation& invocation);  // regenerate
int generate_plan(app::Invocation& invocation);
int accept_plan(app::Invocation& invocation);

}  // namespace sf::tool
