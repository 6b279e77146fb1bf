// SPDX-License-Identifier: Apache-2.0
// The geometry every draft copies from its target, under the names a Hugging Face config.json has for it.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "arch/decoder.h"
#include "base/json.h"

namespace sf::arch {

struct DraftShape {
  int64_t vocab = 0, hidden = 0, intermediate = 0, layers = 1, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t max_positions = 0;
  double rms_eps = 1e-6;
  Rope rope;
  Dtype stored = Dtype::kF32;
  int64_t bos = -1;
  std::vector<int64_t> eos;

  friend bool operator==(const DraftShape&, const DraftShape&) = default;
};

// The target's, of `layers` layers.
DraftShape shape_for_target(const Decoder& target, int64_t layers);
// kConfig naming the setting. What `otherwise` leaves 0 must be stated (kData); kv_heads may be left out (heads).
DraftShape shape_from_config(const Json& config, const DraftShape& otherwise);
// Sizes, rotary (both schemas), tokens, dtype, tie_word_embeddings false.
void shape_to_config(const DraftShape& shape, Json& config);

// The one entry of "architectures", or "".
std::string_view architecture_of(const Json& config);
// kConfig unless config.json names this architecture or none; kData for no object.
void check_architecture(const Json& config, std::string_view architecture);

}  // namespace sf::arch
