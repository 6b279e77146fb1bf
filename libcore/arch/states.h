// SPDX-License-Identifier: Apache-2.0
// A decoder as capture runs it: states, and what a teacher says of the last of them; no logits.
#pragma once
#include "arch/decoder.h"

namespace sf::arch {

// Segments over the rows of several sequences, one after another: "embed", "layers.0" ... "layers.L-1", "norm", and
// with a teacher "teacher". Boundaries: "ids" [n] of all sequences, "lengths" [sequences] of each, "hidden.0" ...
// "hidden.L" [n, H], "final_norm" [n, H], "target_top1" [n], "target_lse" [n]. Parameters are frozen; without a teacher
// a head that is none of the embedding's is left out.
ModelSpec describe_states(const Decoder& decoder, bool teacher);

}  // namespace sf::arch
