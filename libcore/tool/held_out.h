// SPDX-License-Identifier: Apache-2.0
// Decoding held-out prompts with a draft while it trains (eval.interval): what is asked, and the memory that it takes.
// Read by --plan and by the run alike; needs no LibTorch.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "app/command.h"
#include "arch/drafts.h"
#include "tool/draft_files.h"

namespace sf::tool {

struct HeldOut {
  int64_t interval = 0;  // steps; 0: never, and nothing else is filled in
  struct Prompt {
    std::string id;
    std::vector<int32_t> ids;
    int64_t max_new_tokens = 0;
  };
  std::vector<Prompt> prompts;
  arch::Proposals proposals;
  int64_t max_new_tokens = 0, batch = 0;
  double deadline_s = 0;
  std::string conditions;  // digest of all that the counts depend on beside the draft's weights
  uint64_t bytes = 0;      // in tensors of one rank, at most: target, draft, keys and values, one forward
};

// Applies [eval] of a training verb; greedy, in engine.compute_dtype. kConfig: no file of prompts, a target that is not
// whole, or training.best beside it; kData for a prompt that leaves an answer no room.
HeldOut held_out(app::Invocation& invocation, const DraftFiles& draft);

}  // namespace sf::tool
