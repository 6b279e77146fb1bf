// SPDX-License-Identifier: Apache-2.0
// The DFlash draft as data (eagle_dflash 2.1-2.6): a block of masked slots that attends to the target's states.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "arch/decoder.h"
#include "arch/draft_shape.h"
#include "arch/model_spec.h"
#include "base/json.h"

namespace sf::arch {

// What all drafts of blocks are built on; others derive from it.
struct Dflash : DraftShape {
  int64_t block = 16;                   // slots of a block: one clean token, then masks
  int64_t mask_token = -1;              // id of the masks; -1: the config does not say
  int64_t target_layers = 0;            // blocks of the target; 0: the config does not say
  bool bias = false;                    // q, k, v and o projections
  std::vector<int64_t> windows;         // per layer: sliding window, 0 = full attention
  std::vector<int64_t> capture_layers;  // OUR numbering: n = state after n blocks. config.json holds n - 1

  friend bool operator==(const Dflash&, const Dflash&) = default;
};

inline constexpr std::string_view kDflashArchitecture = "DFlashDraftModel";

// kConfig naming the setting. Without dflash_config.target_layer_ids the capture layers are those of
// dflash_capture_layers for num_target_layers, and empty if the config does not say how many those are.
Dflash dflash_from_config(const Json& config);
Json dflash_to_config(const Dflash& draft);
// The same for a draft built on it: what its config.json shares with DFlash's; `architecture` has been checked.
Dflash blocks_from_config(const Json& config);
Json blocks_to_config(const Dflash& draft, std::string_view architecture);
// [L/2] for one draft layer, else 1 + i (L - 4) / (n - 1) rounded half to even (SpecForge's rule), in our numbering.
std::vector<int64_t> dflash_capture_layers(int64_t target_layers, int64_t draft_layers);
// A draft of `layers` layers for this target: geometry copied, full attention, one captured layer a draft layer.
Dflash dflash_for_target(const Decoder& target, int64_t layers);

// The draft's own parameters with SpecForge's names, all trainable. Segments: "context" (fc, hidden_norm: the captured
// layers become the boundary every layer reads), "layers.0" ... and "norm".
ModelSpec describe(const Dflash& draft);
// For training: the target's frozen tables too, and the segments of model::dflash_segments. `tied`: the head is an
// alias of the embedding.
ModelSpec describe_training(const Dflash& draft, bool tied);
// kConfig for a draft that cannot be trained: no mask token, no capture layers.
void check_trainable(const Dflash& draft);

}  // namespace sf::arch
