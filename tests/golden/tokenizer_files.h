// SPDX-License-Identifier: Apache-2.0
// Where golden cases find tokenizer.json files: NAME/tokenizer.json under a folder of SF_TOKENIZERS (colon separated).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "golden.h"
#include "text/tokenizer.h"

namespace sf::golden {

std::string tokenizer_of(const Case& c);  // NAME: from tokenizer_json, else the folder
std::unique_ptr<text::Tokenizer> tokenizer_named(const std::string& name);  // null if no folder has it
std::string missing_tokenizer(const std::string& name);                     // says what is missing and what to do
std::vector<int32_t> ids_of(const Json& list);

}  // namespace sf::golden
