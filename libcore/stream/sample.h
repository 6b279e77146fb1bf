// SPDX-License-Identifier: Apache-2.0
// Samples and the promises made about them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/shape.h"

namespace sf::stream {

// All tensors of one training row, or the reason why its position is void.
// EAGLE3 carries: input_ids I32 [S] · loss_mask U8 [S] · hidden_state [S, 3H] (three captured layers, in order) ·
// final_norm [S, H] · target_top1 I32 [S] (argmax of the target's logits at that index) · target_lse F32 [S]
// (log-sum-exp of the target's logits over the whole vocabulary). DFlash carries: input_ids · loss_mask ·
// hidden_states [S, n H] (n captured layers, in order). Float features have the contract's feature dtype.
struct Sample {
  uint64_t position = 0;  // place in the global order
  uint64_t row = 0;       // row of the data set
  std::vector<NamedTensor> tensors;
  std::optional<std::string> void_reason;

  const HostTensor& at(std::string_view name) const;  // kData naming the tensor and those present
  size_t bytes() const;                               // of the tensors
};

// XXH3 over row, void reason, names, dtypes, shapes and bytes; the position is left out, so one row in two epochs has
// one digest.
uint64_t digest_of(const Sample& sample);

// One line for people: "position 12 row 7  input_ids I32 [96] 0123456789abcdef  ...", or "position 3 row 4  void: why".
std::string describe(const Sample& sample);
// The same for programs: position, row, and tensors with name, dtype, shape and xxh3, or void.
Json summary_of(const Sample& sample);

// What a stream or a feature directory promises. Compared before the first sample; a difference is exit 76.
struct Contract {
  int version = 1;
  std::string algorithm;            // "eagle3", "dflash"
  std::string target;               // identity (SHA-256) of the target checkpoint
  std::string tokenizer;            // digest of tokenizer.json
  std::string chat_template;        // digest of the template text
  std::vector<std::string> layers;  // "2", "15", "27", "final_norm": in our numbering
  std::string feature_dtype;        // "BF16" or "F32"
  std::string compute_dtype;        // what the target ran in
  int64_t vocab = 0, hidden = 0, max_length = 0;
  uint64_t rows = 0;        // rows of the data set, void ones included
  std::string data;         // digest of the row ids and token ids
  uint64_t order_seed = 0;  // below 2^63: JSON integers carry it
  std::string mask_rule;    // "turn" (default) or "reference"

  Json to_json() const;
  // Throws kData for a missing field, a wrong type, a negative number or an over-long text.
  static Contract from_json(const Json& json);
  std::string digest() const;  // SHA-256 of the canonical JSON
  // The first field that differs, as "field: wanted X, found Y"; nullopt if equal.
  std::optional<std::string> difference(const Contract& found) const;
  // The same for a reader that knows only some fields: those left empty or 0 here (and order_seed) are not compared.
  std::optional<std::string> unmet_by(const Contract& found) const;
};

// The most bytes that one sample of this contract takes.
uint64_t largest_sample(const Contract& contract);

// Position -> (epoch, row): a seeded permutation of the rows for each epoch; pure, world-size independent.
struct Place {
  uint64_t epoch = 0, row = 0;
};
Place place_of(uint64_t position, uint64_t rows, uint64_t order_seed);  // kData if there are no rows
// Of each row, its position in the first epoch.
std::vector<uint64_t> first_positions(uint64_t rows, uint64_t order_seed);

}  // namespace sf::stream
