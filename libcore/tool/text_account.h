// SPDX-License-Identifier: Apache-2.0
// What chats are worth as training data, counted.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/chat.h"

namespace sf::tool {

// An answer: an unbroken run of supervised tokens.
struct TextAccount {
  int64_t rows = 0, kept = 0, rejected = 0;    // rows = kept + rejected
  int64_t unsupervised = 0;                    // of `rejected`: no supervised token
  int64_t truncated = 0, left_out = 0;         // kept rows that were cut, and the tokens behind the cut
  int64_t tokens = 0, supervised = 0;          // of kept rows
  int64_t answers = 0, stopped = 0, open = 0;  // stopped: with a supervised stop token; open: ended by a cut
  bool knows_stop = false;                     // the target names a stop token

  // One line for people, counts with what they are of.
  std::string line() const;
  // Why a draft would not learn to stop, or "".
  std::string warning() const;
  Json to_json() const;
};

// `end_ids`: the target's own stop tokens (ckpt::end_ids_of).
TextAccount account_of(std::span<const text::ChatRow> rows, std::span<const int32_t> end_ids);

}  // namespace sf::tool
