// SPDX-License-Identifier: Apache-2.0
// The DFlash2 draft as data (eagle_dflash 2b): DFlash's blocks with a short convolution around every sublayer, whose
// kernels follow the input, and a selector that scores candidates by the token before.
#pragma once
#include "arch/dflash.h"

namespace sf::arch {

struct Dflash2 : Dflash {
  int64_t taps = 2, group = 16;    // conv_kernel_size; channels that share what a kernel adds
  int64_t rank = 256, top_k = 16;  // of the selector; candidates of a slot
  double embedding_scale = 1, output_multiplier = 1;
  double softcap = 0;  // c: logits become c tanh(z / c); 0: none

  friend bool operator==(const Dflash2&, const Dflash2&) = default;
};

inline constexpr std::string_view kDflash2Architecture = "DFlash2DraftModel";

Dflash2 dflash2_from_config(const Json& config);  // kConfig naming the setting
Json dflash2_to_config(const Dflash2& draft);
ModelSpec describe(const Dflash2& draft);
// For training: the segments of model::dflash2_segments.
ModelSpec describe_training(const Dflash2& draft, bool tied);

}  // namespace sf::arch
