// SPDX-License-Identifier: Apache-2.0
// The Domino draft as data (eagle_dflash 4.1): DFlash's blocks, and a correction of the logits that follows the tokens
// so far.
#pragma once
#include "arch/dflash.h"

namespace sf::arch {

struct Domino : Dflash {
  int64_t projection = 256, state = 1024;  // emb_dim, gru_hidden_dim
  int64_t prefix = 1;                      // slots without a correction
  bool shift_label = true;                 // slot k predicts x[a + 1 + k], else x[a + k] from k = 1

  int64_t first_corrected() const { return shift_label ? prefix : 1 + prefix; }
  friend bool operator==(const Domino&, const Domino&) = default;
};

inline constexpr std::string_view kDominoArchitecture = "DominoDraftModel";

Domino domino_from_config(const Json& config);  // kConfig naming the setting
Json domino_to_config(const Domino& draft);
ModelSpec describe(const Domino& draft);
// For training: the segments of model::domino_segments.
ModelSpec describe_training(const Domino& draft, bool tied);

}  // namespace sf::arch
