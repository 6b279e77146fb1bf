// SPDX-License-Identifier: Apache-2.0
#include "tool/prompts.h"

#include <charconv>
#include <map>
#include <string>

#include "base/error.h"

namespace sf::tool {

Prompts read_prompts(app::Invocation& invocation, const text::ChatEncoder& encoder, int64_t positions) {
  size_t limit = 0;
  if (invocation.has("limit")) {
    std::string text = invocation.get("limit");
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
    SF_CHECK(error == std::errc() && end == text.data() + text.size() && limit > 0, Exit::kUsage,
             "--limit {}: wanted a whole number from 1", text);
  }
  return read_prompts(invocation.get("prompts"), limit, encoder, positions);
}

Prompts read_prompts(const std::filesystem::path& file, size_t limit, const text::ChatEncoder& encoder,
                     int64_t positions) {
  Prompts result{text::read_prompts(file), {}};
  if (limit > 0 && limit < result.prompts.size()) result.prompts.resize(limit);
  SF_CHECK(!result.prompts.empty(), Exit::kData, "{} holds no prompt", file.string());
  std::map<std::string, std::string> lines;  // of each id
  for (const text::Prompt& prompt : result.prompts) {
    auto [first, fresh] = lines.emplace(prompt.id, prompt.origin);
    SF_CHECK(fresh, Exit::kData, "{}: the id {} is that of {} too; answers are kept by id", prompt.origin, prompt.id,
             first->second);
    try {
      result.ids.push_back(encoder.encode_prompt(prompt.messages));
    } catch (Error& error) {
      error.add_context(fmt::format("{}: prompt {}, chat template", prompt.origin, prompt.id));
      throw;
    }
    SF_CHECK(std::ssize(result.ids.back()) < positions, Exit::kData,
             "{}: prompt {}: {} tokens, but this target has {} positions", prompt.origin, prompt.id,
             result.ids.back().size(), positions);
  }
  return result;
}

}  // namespace sf::tool
