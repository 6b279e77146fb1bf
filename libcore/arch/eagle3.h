// SPDX-License-Identifier: Apache-2.0
// The EAGLE3 draft as data (eagle_dflash 1.1, 1.3, 1.8).
#pragma once
#include <array>
#include <cstdint>

#include "arch/decoder.h"
#include "arch/draft_shape.h"
#include "arch/model_spec.h"
#include "base/json.h"

namespace sf::arch {

struct Eagle3 : DraftShape {
  int64_t draft_vocab = 0, target_hidden = 0;
  bool fc_norm = false;     // RMSNorm of each captured chunk before fc
  bool norm_output = true;  // norm in front of lm_head
  // Layers captured, in OUR numbering: n = un-normed state after n blocks. config.json holds SpecForge's n - 1.
  std::array<int64_t, 3> capture_layers{};

  friend bool operator==(const Eagle3&, const Eagle3&) = default;
};

// What of a micro-batch decides how much memory its training takes.
struct Eagle3Batch {
  int64_t rows = 0, width = 0;
  int64_t keys = 0, active = 0;      // indices computed: of block 0's keys; of all else
  int64_t labels = 0;                // trained labels
  std::vector<int64_t> step_labels;  // of them, those that step k reaches; steps that reach none are absent
  std::vector<int64_t> step_active;  // of the active indices, those that step k computes; the first computes all
};

inline constexpr std::string_view kEagle3Architecture = "LlamaForCausalLMEagle3";

// kConfig naming the setting. Without eagle_config the capture layers stay {0, 0, 0}: they belong to the target, and
// eagle3_for_target(...).capture_layers is the default.
Eagle3 eagle3_from_config(const Json& config);
Json eagle3_to_config(const Eagle3& draft);
// A draft for this target: geometry copied, capture layers [2, L/2, L-3].
Eagle3 eagle3_for_target(const Decoder& target, int64_t draft_vocab);
// Parameters with SpecForge's names (embed_tokens.weight frozen copy of the target's; fc, midlayer.*, norm, lm_head
// trainable), buffers t2d (BOOL [vocab]) and d2t (I64 [draft_vocab], offsets: target id = i + d2t[i]).
// One segment "eagle3" (the unrolled steps); flops_per_token are those of one step, fc included.
ModelSpec describe(const Eagle3& draft);
// How a parameter starts instead of Parameter::init when the draft starts from its target; "": no different. The start
// reads the last captured state through the target's own norm and head, with the block adding nothing yet:
//   lm_head the target's rows; fc passes the last captured state (and a little of the others); o_proj, down_proj zero;
//   fc_norm.i the norm the target puts before the block that reads that state; norm a fifth of the target's, because
//   the state guesses the token before the wanted one and should not insist.
std::string warm_start(const Eagle3& draft, const Decoder& target, const std::string& parameter);
// For training: one more frozen parameter, the rows of the teacher's head that belong to the draft vocabulary
// (kTargetHead, [Vd, Ht]); the embedding is looked up by a segment of its own, before the unrolled steps: "tokens",
// "embed", "eagle3".
ModelSpec describe_training(const Eagle3& draft);

}  // namespace sf::arch
