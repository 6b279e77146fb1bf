// SPDX-License-Identifier: Apache-2.0
// The hybrid families' part of config.json. Private to this room.
#pragma once
#include <string_view>

#include "arch/decoder.h"

namespace sf::arch {

bool is_hybrid(std::string_view family);
// What rotary parameters may say in this family.
RopeForm rope_form(std::string_view family);
// Fills in what a decoder of a hybrid family has beside the others; its sizes, heads and tokens are read already.
void read_hybrid(const Json& config, Decoder& decoder);
void hybrid_to_config(const Decoder& decoder, Json& config);

}  // namespace sf::arch
