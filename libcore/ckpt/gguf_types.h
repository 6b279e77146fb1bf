// SPDX-License-Identifier: Apache-2.0
// Block sizes of ggml's types. Private to this room.
#pragma once
#include "ckpt/gguf.h"

namespace sf::ckpt {

struct GgufBlock {
  uint64_t values, bytes;
};
GgufBlock block_of(GgufType type);
GgufType supported_type(uint32_t number);  // kData by number and name

}  // namespace sf::ckpt
