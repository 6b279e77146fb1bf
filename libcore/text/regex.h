// SPDX-License-Identifier: Apache-2.0
// PCRE2 (UTF, UCP, JIT) as pre-tokenizers need it: all matches of one pattern, left to right.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sf::text {

// Immutable; safe to share between threads.
class Regex {
 public:
  // kData with the offset if the pattern is not understood. \s and \S mean the White_Space property (PCRE2's own class
  // holds U+180E besides).
  static Regex compile(std::string_view pattern, std::string_view origin);
  // Byte ranges of all matches, empty ones included. Requires: valid UTF-8. kData past the match limit.
  std::vector<std::pair<size_t, size_t>> matches(std::string_view text) const;
  // Of the last match: its first group if the pattern has one that took part, else all of it. kData as above.
  std::optional<std::pair<size_t, size_t>> last_match(std::string_view text) const;

 private:
  // Calls `take` with the bounds of each match and of its groups, as PCRE2 has them.
  void each_match(std::string_view text, const std::function<void(const size_t* bounds, size_t pairs)>& take) const;
  struct Code;
  std::shared_ptr<const Code> code_;
};

}  // namespace sf::text
