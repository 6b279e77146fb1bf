// SPDX-License-Identifier: Apache-2.0
// What the checkpoint of a draft or of an adapter says about the target it belongs to, and a draft's vocabulary map.
#pragma once
#include <map>
#include <string>

#include "arch/vocab_map.h"
#include "ckpt/checkpoint.h"

namespace sf::ckpt {

// Kept in the manifest of every checkpoint of a draft or an adapter, from sf-init to the last one of a run.
struct TargetLink {
  std::string identity;                  // of the target checkpoint
  std::string tokenizer, chat_template;  // digests (text::ChatEncoder)
  std::string path;                      // where it was when the draft was made; the identity is what counts
  std::map<std::string, std::string>
      taken;  // draft's parameter -> target's: frozen copies that the draft does not store
};

void set_target(Manifest& manifest, const TargetLink& link);
TargetLink target_of(const Checkpoint& draft);  // kData if the manifest does not name a target
// kProtocol naming both if `target`, or the tokenizer beside it, is not the one that the draft was made for.
void check_target(const Checkpoint& draft, const Checkpoint& target);
// Buffers t2d (BOOL or U8) and d2t (I64), checked against each other: kData if they disagree.
arch::VocabMap read_vocab_map(const Checkpoint& draft);

}  // namespace sf::ckpt
