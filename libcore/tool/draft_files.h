// SPDX-License-Identifier: Apache-2.0
// A draft's files, and the target it belongs to.
#pragma once
#include <map>
#include <string>

#include "app/command.h"
#include "arch/decoder.h"
#include "ckpt/checkpoint.h"
#include "ckpt/draft.h"
#include "stream/sample.h"

namespace sf::tool {

struct DraftFiles {
  ckpt::Checkpoint files, target;
  ckpt::TargetLink link;

  // Whether the draft takes head and embedding from one table of the target.
  bool tied() const;
};
// --draft, and its target from --target or from where it was when the draft was made. kNoInput if it is not there;
// kProtocol if it is another.
DraftFiles open_draft(app::Invocation& invocation);
// Parameters that a draft takes from its target rather than stores: its name -> the target's.
std::map<std::string, std::string> taken_of(const Json& draft_config, const arch::Decoder& target);
// What the draft decides of the contract of its samples.
stream::Contract wanted_contract(const DraftFiles& draft);

}  // namespace sf::tool
