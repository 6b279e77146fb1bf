// SPDX-License-Identifier: Apache-2.0
// Experts in config.json. Private to this room.
#pragma once
#include <vector>

#include "arch/decoder.h"

namespace sf::arch {

// By layer, whether it routes: by decoder_sparse_step and mlp_only_layers.
std::vector<bool> sparse_layers(const Json& config, int64_t layers);
void sparse_to_config(const std::vector<bool>& layers, Json& config);

// Of the families that had experts first: qwen2_moe, qwen3_moe.
Experts experts_from_config(const Json& config, const Decoder& decoder);
void experts_to_config(const Decoder& decoder, Json& config);

}  // namespace sf::arch
