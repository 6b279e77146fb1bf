// SPDX-License-Identifier: Apache-2.0
// Speculative decoding (models_text_scoring 7.2): the draft proposes a chain or a tree of tokens, one target forward
// verifies them for all sequences of the batch. Greedy: token for token what generate() gives. Sampled from a chain:
// tokens follow the target's law exactly (Leviathan et al.), though not with generate()'s own draws. Sampled from a
// tree: the target's own draw picks the branch, so that tokens are generate()'s again.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "gen/drafter.h"
#include "gen/generate.h"

namespace sf::gen {

struct SpeculativeStats {
  GenerateStats all;          // prefill_s holds the draft's prefill too, decode_s drafting and verification
  int64_t verifications = 0;  // verified blocks, one a sequence and round
  int64_t committed = 0;      // tokens committed by them, bonus included, the prefill's token not
  int64_t draft_forwards = 0;
  double draft_s = 0;  // part of decode_s
  // tried[j]: blocks whose first j drafts were accepted and that went on to look at draft j (any of a tree's level j)
  std::vector<int64_t> tried;
  std::vector<int64_t> accepted;  // of those, draft j too
  double acceptance_length() const {
    return verifications > 0 ? static_cast<double>(committed) / static_cast<double>(verifications) : 0;
  }
};

// depth, width >= 1. With log_probs the sum is over all committed tokens, as in generate(). kConfig for bad options, or
// a tree asked of a family whose proposals are a chain.
SpeculativeStats speculate(Target& target, Drafter& draft, std::span<const Prompt> prompts,
                           const GenerateOptions& options, const Proposals& proposals,
                           const std::function<void(const Completion&)>& done);

}  // namespace sf::gen
