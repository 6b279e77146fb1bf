// SPDX-License-Identifier: Apache-2.0
// A target as the verbs open it: checkpoint, words and mathematics.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/command.h"
#include "ckpt/adapter.h"
#include "engine/host_file.h"
#include "gen/drafter.h"
#include "gen/generate.h"
#include "gen/target.h"
#include "text/chat.h"
#include "tool/exam.h"
#include "tool/target_settings.h"

namespace sf::run {

struct OpenTarget {
  std::shared_ptr<const engine::HostFile> host_table;  // outlives `model`, which looks up in it; or null
  ckpt::Checkpoint checkpoint;
  std::optional<ckpt::AdapterFiles> adapter;  // what `model` is merged with
  text::ChatEncoder encoder;
  gen::Target model;
  Dtype compute;
};

// Applies target.compute_dtype and target.threads, then loads everything of --target with --adapter, or of `candidate`.
// `variables`: further names for its chat template, or null.
OpenTarget open_target(app::Invocation& invocation);
OpenTarget open_target(app::Invocation& invocation, const tool::Candidate& candidate, const Json& variables);
// Of --target, for a verb that reads shard.host_resident and shard.host_dir: they are applied, and the embedding can be
// a mapping of its file.
OpenTarget open_host_target(app::Invocation& invocation);

// A draft of `target` for decoding; applies speculation.least_confidence. `target` must outlive it.
std::unique_ptr<gen::Drafter> open_draft(app::Invocation& invocation, const ckpt::Checkpoint& files,
                                         const gen::Target& target);

// Sampling, stop ids (the target's eos, generate.stop) and limits from [generate]; every key of the section is applied.
gen::GenerateOptions generate_options(app::Invocation& invocation, const OpenTarget& target);
// The same of what was applied already.
gen::GenerateOptions generate_options(app::Invocation& invocation, const OpenTarget& target,
                                      tool::AnswerSettings asked);

// The prompts of --prompts as tool::read_prompts gives them; `sample` of each is derived from its id, so neither order
// nor selection changes what is drawn for it.
struct EncodedPrompts {
  std::vector<text::Prompt> prompts;
  std::vector<gen::Prompt> encoded;
};
EncodedPrompts encode_prompts(app::Invocation& invocation, const OpenTarget& target);

// kProtocol unless the draft's manifest names this target (a draft without a manifest is taken on trust, with a
// warning).
void check_draft_belongs(app::Invocation& invocation, const ckpt::Checkpoint& draft,
                         const std::string& target_identity);

}  // namespace sf::run
