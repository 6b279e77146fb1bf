// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE: the bytes of one pre-token become ids by merging the pair of lowest rank, leftmost first
// (models_text_scoring 4.6, 4.10). Costs O(n log n) for a piece of n bytes, whatever the bytes.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace sf::text {

class Bpe {
 public:
  // The "model" object of a tokenizer.json. kData names what is broken or not supported.
  static Bpe from_json(const Json& model, std::string_view origin);

  // Appends the ids of one piece. A byte that the vocabulary lacks becomes unk_token, or nothing where there is none.
  void encode(std::string_view piece, std::vector<int32_t>& out) const;
  int32_t id_of_bytes(std::string_view bytes) const;  // of the vocabulary, not of added tokens; -1 if absent

  // Vocabulary strings as the file writes them, by id; ids may have gaps (present() false).
  const std::vector<std::string>& tokens() const { return tokens_; }
  bool present(size_t id) const { return id < present_.size() && present_[id]; }

 private:
  struct Merge {
    uint64_t pair = kNoPair;  // left id << 32 | right id
    uint32_t rank = 0;
    int32_t id = 0;
  };
  struct Word {
    uint64_t hash = 0;
    int32_t id = -1;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};
  static constexpr uint32_t kNoRank = ~uint32_t{0};

  void read_vocab(const Json& vocab, std::string_view origin);
  void read_merges(const Json& merges, std::string_view origin);
  void read_bytes();
  const Merge* find(int32_t left, int32_t right) const;
  void merge(std::string_view piece, std::vector<int32_t>& out) const;
  void merge_short(std::vector<int32_t>& symbols) const;
  void merge_long(std::vector<int32_t>& symbols) const;

  std::vector<std::string> tokens_;
  std::vector<std::string> bytes_;  // by id; empty where the token is not written in the byte alphabet
  std::vector<bool> present_;
  std::vector<Word> words_;       // open addressing, bytes -> id
  std::vector<Merge> merges_;     // open addressing, pair -> rank and result
  std::vector<uint64_t> filter_;  // a bit for each pair's hash: most neighbours never merge, and a look at 2 bytes a
                                  // merge that stay in cache says so
  std::array<int32_t, 256> byte_ids_{};
  int32_t unknown_ = -1;
  bool ignore_merges_ = false;
  uint32_t serial_ = 0;  // owner of entries in the threads' piece caches
};

}  // namespace sf::text
