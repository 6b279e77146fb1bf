// SPDX-License-Identifier: Apache-2.0
// What the hybrid families (Qwen3-Next, Qwen3.5, Qwen4-Exp) have beside other decoders: layers that keep a state
// instead of keys, several residual streams, sparse attention, embeddings of n-grams. Source: models_text_scoring 3.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace sf::arch {

// Gated delta net: a linear recurrence in the place of attention (models_text_scoring 3.3).
struct DeltaNet {
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  int64_t taps = 0;           // of the causal convolution before it
  bool grouped = false;       // two projections, qkvz and ba, by key head; else four: qkv, z, b, a
  bool sigmoid_gate = false;  // of the output; else silu
  std::vector<bool> layers;   // by layer: it has one in the place of attention; empty: none has

  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return value_heads * value_dim; }
  int64_t channels() const { return 2 * keys() + values(); }  // q, k, v: what is convolved
  friend bool operator==(const DeltaNet&, const DeltaNet&) = default;
};

// The residual as several streams side by side, each hidden wide; what a layer reads is mixed from them, what it makes
// is added to each (models_text_scoring 3.5).
struct WideResidual {
  int64_t streams = 1, rank = 0;
  friend bool operator==(const WideResidual&, const WideResidual&) = default;
};

// Chooses which blocks of keys a query attends to: of every `ratio` keys, `budget` keys at most (models_text_scoring
// 3.5). heads 0: attention sees all.
struct Indexer {
  int64_t heads = 0, dim = 0, budget = 0, ratio = 0;
  friend bool operator==(const Indexer&, const Indexer&) = default;
};

// The integers by which rows of one layer's table of n-grams are found, as checkpoints store them.
struct NgramHash {
  std::vector<int64_t> multipliers;     // one for each token of the longest n-gram
  std::vector<int64_t> sizes, offsets;  // by head, those of bigrams first: primes, and the sums of those before
  int64_t rows = 0;                     // of the table

  friend bool operator==(const NgramHash&, const NgramHash&) = default;
};

// Embeddings of the n-grams that end at a token, added to the residual before some layers (models_text_scoring 3.5).
struct Ngrams {
  int64_t longest = 0;            // 3: bigrams and trigrams
  int64_t heads = 0;              // of each order
  int64_t width = 0;              // of all heads together
  int64_t taps = 0;               // of the convolution, whose dilation is `longest`
  int64_t base = 0, divisor = 0;  // of the tables' rows
  int64_t seed = 0, parts = 0;    // of the multipliers; files a table is saved in
  std::vector<int64_t> layers;    // ascending
  std::vector<NgramHash> hashes;  // of each of them
  int64_t end = -1;               // the token that ends a segment: no n-gram reaches across

  int64_t all_heads() const { return (longest - 1) * heads; }
  friend bool operator==(const Ngrams&, const Ngrams&) = default;
};

// What the settings make of the layer at this place of Ngrams::layers.
NgramHash ngram_hash(const Ngrams& ngrams, int64_t place, int64_t vocab);

}  // namespace sf::arch
