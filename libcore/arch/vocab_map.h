// SPDX-License-Identifier: Apache-2.0
// The draft vocabulary: which target tokens a draft can propose (eagle_dflash 1.7). Pure arithmetic.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace sf::arch {

// Equally frequent tokens compete for the last places of the draft vocabulary.
enum class TieRule {
  kLowestId,   // the lower id wins: independent of the order of the data
  kFirstSeen,  // the reference's: the token counted first wins
};

// How often each token id was supervised, and in which order the ids were first seen.
class TokenCounts {
 public:
  explicit TokenCounts(int64_t vocab);
  // kData if an id is outside [0, vocab).
  void add(int64_t id);
  // The supervised tokens of one row, in ascending order as the reference counts a feature file. mask 0 leaves out.
  void add_row(std::span<const int32_t> ids, std::span<const uint8_t> mask);

  int64_t vocab() const { return static_cast<int64_t>(counts_.size()); }
  int64_t count(int64_t id) const { return counts_[static_cast<size_t>(id)]; }
  const std::vector<int64_t>& seen() const { return seen_; }  // in the order of first sight
  int64_t total() const { return total_; }                    // supervised tokens

 private:
  std::vector<int64_t> counts_, seen_;
  int64_t total_ = 0;
};

struct VocabMap {
  std::vector<int64_t> used;  // target ids of the draft's tokens, ascending
  std::vector<int64_t> d2t;   // offsets: used[i] = i + d2t[i]
  std::vector<uint8_t> t2d;   // 1 for each target id in `used`; length of the target's vocabulary
};

// The draft_vocab most frequent ids; where fewer were seen, the lowest unseen ids below draft_vocab fill up.
// kConfig unless 1 <= draft_vocab <= vocab.
VocabMap make_vocab_map(const TokenCounts& counts, int64_t draft_vocab, TieRule rule);
// From the stored buffers; kData unless t2d marks exactly the ids i + d2t[i], ascending.
VocabMap vocab_map_from(std::span<const int64_t> d2t, std::span<const uint8_t> t2d);
// Supervised tokens that the draft can propose; the denominator is counts.total().
int64_t covered(const TokenCounts& counts, const VocabMap& map);

}  // namespace sf::arch
