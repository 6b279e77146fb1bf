// SPDX-License-Identifier: Apache-2.0
// A target as the verbs open it: checkpoint, words, mathematics, and what a stream may promise of it.
#pragma once
#include <filesystem>

#include "app/command.h"
#include "arch/dflash.h"
#include "arch/eagle3.h"
#include "ckpt/checkpoint.h"
#include "gen/generate.h"
#include "gen/target.h"
#include "stream/sample.h"
#include "text/chat.h"

namespace sf::run {

struct OpenTarget {
  ckpt::Checkpoint checkpoint;
  text::ChatEncoder encoder;
  gen::Target model;
  Dtype compute;
};

// Applies target.compute_dtype and target.threads, then loads everything of --target.
OpenTarget open_target(app::Invocation& invocation);

// Sampling, stop ids (the target's eos, generate.stop) and limits from [generate]; every key of the section is applied.
gen::GenerateOptions generate_options(app::Invocation& invocation, const OpenTarget& target);

// The prompts of --prompts (first --limit), encoded; `sample` of each is derived from its id, so neither order nor
// selection changes what is drawn for it.
struct EncodedPrompts {
  std::vector<text::Prompt> prompts;
  std::vector<gen::Prompt> encoded;
};
EncodedPrompts encode_prompts(app::Invocation& invocation, const OpenTarget& target);

// kProtocol unless the draft's manifest names this target (a draft without a manifest is taken on trust, with a
// warning).
void check_draft_belongs(app::Invocation& invocation, const ckpt::Checkpoint& draft,
                         const std::string& target_identity);

// "2", "15", "27", "final_norm": the order in which features are carried.
std::vector<std::string> eagle3_layers(const arch::Eagle3& draft);
std::vector<std::string> dflash_layers(const arch::Dflash& draft);

// What a draft wants of its target: layers in our numbering, and with `teacher` the last normed state, its best ids and
// their log-sum-exp.
struct CaptureWish {
  std::string algorithm;
  std::vector<int64_t> layers;
  bool teacher = false;
  std::vector<std::string> names;  // as a contract carries them
};
// By the architecture that a draft's config.json names.
CaptureWish capture_wish(const Json& draft_config);
// The promise of a stream, without the data's part (rows, digest, order).
stream::Contract contract_of(const OpenTarget& target, const CaptureWish& wish);

}  // namespace sf::run
