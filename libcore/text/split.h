// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizers: a text becomes pieces that byte-level BPE merges one by one (models_text_scoring 4.4).
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace sf::text {

// Pieces point into the text that was split, or into `kept` where a stage had to write (a prefix space).
struct Pieces {
  std::vector<std::string_view> list;
  std::vector<std::unique_ptr<std::string>> kept;
};

class SplitStage {
 public:
  virtual ~SplitStage() = default;
  // Splits every piece again. Requires: valid UTF-8. Each piece stands alone: no stage looks beyond its ends.
  virtual void apply(Pieces& pieces) const = 0;
};

class PreTokenizer {
 public:
  // Split (Regex or String, all behaviours), Digits, ByteLevel and Sequences of them. kData names any other stage and
  // its JSON path; a pre-tokenizer without ByteLevel is refused.
  static PreTokenizer from_json(const Json& json, std::string_view origin);
  // Pieces of one text in `pieces` (emptied first); empty pieces are left out.
  void split(std::string_view text, Pieces& pieces) const;

 private:
  std::vector<std::unique_ptr<SplitStage>> stages_;
};

// The published patterns, for which a scanner without a regex engine exists.
extern const std::string_view kGpt2Pattern;
extern const std::string_view kQwen2Pattern;
extern const std::string_view kLlama3Pattern;
extern const std::string_view kQwen35Pattern;

// A stage that isolates the matches of `pattern`: scanner = true uses the hand-written form (null if there is none).
std::unique_ptr<SplitStage> isolate(std::string_view pattern, bool scanner, std::string_view origin);

}  // namespace sf::text
