// SPDX-License-Identifier: Apache-2.0
// A tokenizer rebuilt from GGUF metadata: the tokenizer.json and tokenizer_config.json that must come out.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace sf::text {

struct GgufTokenizer {
  std::string model;                // tokenizer.ggml.model: only "gpt2" (byte-level BPE) is accepted, else kConfig
  std::string pre;                  // tokenizer.ggml.pre: "smollm", "qwen2", "llama-bpe", "gpt-2"; else kConfig by name
  std::vector<std::string> tokens;  // id order
  std::vector<int32_t> token_types;  // 1 normal, 3 control, 4 user defined, 6 byte
  std::vector<std::string> merges;   // "left right"
  int64_t bos = -1, eos = -1, unknown = -1, padding = -1;
  bool add_bos = false, add_space_prefix = false;
  std::string chat_template;  // empty: none
};

Json tokenizer_json(const GgufTokenizer& source);
Json tokenizer_config_json(const GgufTokenizer& source);

}  // namespace sf::text
