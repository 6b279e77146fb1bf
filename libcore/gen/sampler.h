// SPDX-License-Identifier: Apache-2.0
// From scores to a token: processors in the order of models_text_scoring 7.1, then one counter-based draw.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/rng.h"

namespace sf::gen {

// Order: repetition penalty, temperature, top-k, top-p, min-p.
struct Sampling {
  double temperature = 0;  // 0: greedy (the lowest id wins a tie); the four filters below temperature then do nothing
  int64_t top_k = 0;       // 0: all; scores equal to the k-th stay
  double top_p = 1;  // (0, 1]: the smallest set of best tokens whose mass reaches top_p; equal scores: lowest id first
  double min_p = 0;  // [0, 1]: tokens below min_p times the best one's probability go
  double repetition_penalty = 1;  // > 0; once for each distinct token of prompt and answer, under greedy too
  uint64_t seed = 0;

  void check() const;  // kConfig naming the setting
  bool greedy() const { return temperature == 0; }
  bool needs_history() const { return repetition_penalty != 1; }
};

// The law of the next token: ids ascending, probabilities that sum to 1.
struct Law {
  std::vector<int32_t> ids;
  std::vector<double> probabilities;

  double of(int32_t id) const;   // 0 outside
  int32_t pick(double u) const;  // u in [0, 1): inverse of the cumulative sum
  // norm(max(this - other, 0)), the law after a rejection; this law itself where that is 0 everywhere.
  Law minus(const Law& other) const;
};

// `scores`: one row of logits. `history`: prompt and answer so far (read if needs_history()). `target_ids`: the
// vocabulary id of each score, distinct and ascending; empty: its index. Under greedy the law is one token. kData if no
// score is finite.
Law law_of(std::span<const float> scores, const Sampling& sampling, std::span<const int32_t> history,
           std::span<const int32_t> target_ids = {});

// Draws for token `index` of answer `sample`: a function of (seed, purpose, sample, index) and nothing else.
class Draws {
 public:
  explicit Draws(uint64_t seed) : token_(seed, "gen:token"), draft_(seed, "gen:draft"), accept_(seed, "gen:accept") {}
  double token(uint64_t sample, uint64_t index) const { return token_.uniform(sample, index); }
  double draft(uint64_t sample, uint64_t index) const { return draft_.uniform(sample, index); }
  double accept(uint64_t sample, uint64_t index) const { return accept_.uniform(sample, index); }

 private:
  Rng token_, draft_, accept_;
};

}  // namespace sf::gen
