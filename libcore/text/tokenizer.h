// SPDX-License-Identifier: Apache-2.0
// tokenizer.json with byte-level BPE (models_text_scoring 4). Unknown stages are refused by name (kData), with their
// path in the file.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace sf::text {

// Immutable after construction; safe to share between threads.
class Tokenizer {
 public:
  static Tokenizer open(const std::filesystem::path& tokenizer_json);
  static Tokenizer from_json(const Json& json, std::string_view origin);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;

  // Special and added tokens in the text are recognised; no BOS or EOS is added unless `with_special` (post-processor).
  // Text that is not valid UTF-8 is kData with the byte: silent replacement would change the data.
  std::vector<int32_t> encode(std::string_view text, bool with_special = false) const;
  // Exact bytes; each maximal invalid UTF-8 subsequence becomes one U+FFFD. skip_special leaves special tokens out. Ids
  // that no token has (padded rows of a model's head) are left out.
  std::string decode(const std::vector<int32_t>& ids, bool skip_special = false) const;
  std::string bytes_of(int32_t id) const;       // raw bytes of one token; kData if out of range
  int32_t id_of(std::string_view token) const;  // as the file writes it (byte alphabet); -1 if unknown
  bool has(int32_t id) const;                   // some token has this id
  bool is_special(int32_t id) const;            // false where no token has this id
  int64_t vocab_size() const;                   // highest id + 1, added tokens included

 private:
  Tokenizer();
  struct State;
  std::unique_ptr<State> state_;
};

// Turns a run of tokens into text piece by piece: holds back bytes until they complete a code point. What push and
// finish return, joined, is what decode returns. `tokenizer` must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  std::string push(int32_t id);  // text that became complete
  std::string finish();          // the rest, broken bytes as U+FFFD

 private:
  const Tokenizer* tokenizer_;
  std::string held_;
};

}  // namespace sf::text
