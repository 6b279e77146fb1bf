// SPDX-License-Identifier: Apache-2.0
// One sequence being decoded: shared by plain and speculative decoding, so that both end at the same token.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gen/generate.h"

namespace sf::gen {

class Sequence {
 public:
  Sequence(const Prompt& prompt, size_t index, const GenerateOptions& options);

  // Appends a token. True while the sequence goes on; false once it was the stop id or the last allowed token.
  bool commit(int32_t id);
  bool finished() const { return finished_; }
  uint64_t sample() const { return sample_; }
  std::span<const int32_t> ids() const { return ids_; }  // prompt and answer
  int32_t last() const { return ids_.back(); }
  uint64_t answered() const { return ids_.size() - prompt_tokens_; }
  size_t prompt_tokens() const { return prompt_tokens_; }
  int64_t capacity(int64_t look_ahead) const;  // of a cache for all of it plus `look_ahead` tokens
  Completion completion() const;

  double log_prob = 0;
  float least_margin;
  std::vector<double> token_log_probs;

 private:
  uint64_t sample_;
  size_t index_, prompt_tokens_;
  int64_t max_new_tokens_;
  bool ends_in_stop_text(int32_t id);
  const GenerateOptions& options_;
  std::string tail_;  // bytes of the answer's text in which a stop text may have begun
  std::vector<int32_t> ids_;
  bool finished_ = false;
  Finish finish_ = Finish::kLength;
};

// Caches of finished sequences, kept for the next that fits.
class CachePool {
 public:
  template <typename Make>
  Cache take(int64_t capacity, const Make& make) {
    auto found = free_.lower_bound(capacity);
    if (found == free_.end()) return make(capacity);
    Cache cache = std::move(found->second);
    free_.erase(found);
    cache.truncate(0);
    return cache;
  }
  void give(Cache cache) { free_.emplace(cache.capacity(), std::move(cache)); }

 private:
  std::multimap<int64_t, Cache> free_;
};

// The next token of a row of final states, by the options; adds to the sequence's log_prob and least_margin.
class Chooser {
 public:
  Chooser(const Target& target, const GenerateOptions& options);
  // Rows of `final_norm` belong to `sequences`, one each.
  std::vector<int32_t> choose(const at::Tensor& final_norm, std::span<Sequence* const> sequences) const;
  bool needs_scores() const { return needs_scores_; }
  const Draws& draws() const { return draws_; }

 private:
  const Target& target_;
  const GenerateOptions& options_;
  Draws draws_;
  bool needs_scores_;
};

// log softmax(scores / temperature)[id] and best minus second best, in fp64 sums.
double log_prob_of(std::span<const float> scores, int32_t id, double temperature = 1);
float margin_of(std::span<const float> scores);

}  // namespace sf::gen
