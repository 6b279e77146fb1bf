// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "arch/decoder.h"

namespace sf::ckpt {

// The ids that end an answer: eos_token_id of generation_config.json, else of config.json. kData naming the file for an
// id outside the vocabulary, be it there or behind eos_token of tokenizer_config.json.
std::vector<int32_t> end_ids_of(const std::filesystem::path& dir, const arch::Decoder& decoder);

}  // namespace sf::ckpt
