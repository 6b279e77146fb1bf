// SPDX-License-Identifier: Apache-2.0
#include "tool/draft_files.h"

#include <filesystem>
#include <utility>

#include "arch/drafts.h"
#include "base/error.h"
#include "tool/capture_wish.h"

namespace sf::tool {

bool DraftFiles::tied() const {
  auto head = link.taken.find(arch::kTargetHead), embedding = link.taken.find(arch::kTargetEmbedding);
  return head != link.taken.end() && embedding != link.taken.end() && head->second == embedding->second;
}

DraftFiles open_draft(app::Invocation& invocation) {
  ckpt::Checkpoint files = ckpt::Checkpoint::open(invocation.get("draft"));
  ckpt::TargetLink link = ckpt::target_of(files);
  std::string path = invocation.get("target", link.path);
  SF_CHECK(std::filesystem::exists(path), Exit::kNoInput, "the target of draft {} is not at {}; give --target DIR",
           files.dir().string(), path);
  ckpt::Checkpoint target = ckpt::Checkpoint::open(path);
  ckpt::check_target(files, target);
  return {std::move(files), std::move(target), std::move(link)};
}

std::map<std::string, std::string> taken_of(const Json& draft_config, const arch::Decoder& target) {
  const arch::DraftFamily& family = arch::draft_family(draft_config);
  std::string embedding = "model.embed_tokens.weight";
  if (family.blocks)
    return {{arch::kTargetEmbedding, embedding}, {arch::kTargetHead, target.tied ? embedding : "lm_head.weight"}};
  std::map<std::string, std::string> taken;
  for (const arch::Parameter& p : family.describe(draft_config).parameters)
    if (!p.trainable) taken[p.name] = p.init.substr(p.init.find(':') + 1);
  return taken;
}

stream::Contract wanted_contract(const DraftFiles& draft) {
  const Json& config = draft.files.config();
  CaptureWish wish = capture_wish(config);
  arch::DraftInput input = arch::draft_family(config).input(config);
  return {.algorithm = wish.algorithm,
          .target = draft.target.identity(),
          .tokenizer = draft.link.tokenizer,
          .chat_template = draft.link.chat_template,
          .layers = wish.names,
          .vocab = input.vocab,
          .hidden = input.hidden};
}

}  // namespace sf::tool
