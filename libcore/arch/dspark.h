// SPDX-License-Identifier: Apache-2.0
// The DSpark draft as data (eagle_dflash 3.1): DFlash's blocks, a bias of the logits by the token before, and a head
// that says how likely a token is to be accepted.
#pragma once
#include "arch/dflash.h"

namespace sf::arch {

enum class Markov { kVanilla, kGated, kRnn };
// "vanilla", "gated", "rnn"; kConfig naming them otherwise.
Markov markov_from_name(std::string_view name);
std::string_view name_of(Markov markov);

struct Dspark : Dflash {
  int64_t rank = 256;  // of the bias; 0: none
  Markov markov = Markov::kVanilla;
  bool confidence = true, confidence_with_markov = false;  // a confidence head; it reads the token before too

  friend bool operator==(const Dspark&, const Dspark&) = default;
};

inline constexpr std::string_view kDsparkArchitecture = "DSparkDraftModel";

// kConfig naming the setting; attention_mode must be what the heads are (gqa: fewer key heads; mha: as many).
Dspark dspark_from_config(const Json& config);
Json dspark_to_config(const Dspark& draft);
ModelSpec describe(const Dspark& draft);
// For training: the segments of model::dspark_segments.
ModelSpec describe_training(const Dspark& draft, bool tied);

}  // namespace sf::arch
