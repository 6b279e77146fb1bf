// SPDX-License-Identifier: Apache-2.0
// PCRE2 (UTF, UCP, JIT) as pre-tokenizers need it: all matches of one pattern, left to right.
#pragma once
#include <memory>
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

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

}  // namespace sf::text
