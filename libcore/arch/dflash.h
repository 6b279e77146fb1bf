// SPDX-License-Identifier: Apache-2.0
// The DFlash draft as data (eagle_dflash 2.1-2.6): a block of masked slots that attends to the target's states.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "arch/decoder.h"
#include "arch/model_spec.h"
#include "base/json.h"

namespace sf::arch {

struct Dflash {
  int64_t vocab = 0, hidden = 0, intermediate = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t max_positions = 0;
  int64_t block = 16;         // slots of a block: one clean token, then masks
  int64_t mask_token = -1;    // id of the masks; -1: the config does not say
  int64_t target_layers = 0;  // blocks of the target; 0: the config does not say
  double rms_eps = 1e-6;
  bool bias = false;  // q, k, v and o projections
  Rope rope;
  std::vector<int64_t> windows;         // per layer: sliding window, 0 = full attention
  std::vector<int64_t> capture_layers;  // OUR numbering: n = state after n blocks. config.json holds n - 1
  Dtype stored = Dtype::kF32;
  int64_t bos = -1;
  std::vector<int64_t> eos;

  friend bool operator==(const Dflash&, const Dflash&) = default;
};

// Does a config.json name this architecture?
bool is_dflash(const Json& config);
// kConfig naming the setting. Without dflash_config.target_layer_ids the capture layers are those of
// dflash_capture_layers for num_target_layers, and empty if the config does not say how many those are.
Dflash dflash_from_config(const Json& config);
Json dflash_to_config(const Dflash& draft);
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
// kConfig for a draft that cannot be trained: no mask token, no capture layers, sliding attention.
void check_trainable(const Dflash& draft);

}  // namespace sf::arch
