// SPDX-License-Identifier: Apache-2.0
// Prompts as the verbs that answer them open them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "app/command.h"
#include "text/chat.h"

namespace sf::tool {

struct Prompts {
  std::vector<text::Prompt> prompts;  // at least one; no id twice
  std::vector<std::vector<int32_t>> ids;
};
// The prompts of a file (the first `limit` of them; 0: all), encoded. kData for one that fills a target of `positions`
// positions, so that no answer has room.
Prompts read_prompts(const std::filesystem::path& file, size_t limit, const text::ChatEncoder& encoder,
                     int64_t positions);
// The prompts of --prompts (the first --limit of them) likewise.
Prompts read_prompts(app::Invocation& invocation, const text::ChatEncoder& encoder, int64_t positions);

}  // namespace sf::tool
