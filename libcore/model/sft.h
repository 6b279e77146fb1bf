// SPDX-License-Identifier: Apache-2.0
// A dense decoder in supervised fine-tuning, of every parameter or of adapters alone; the last segment ends in the
// loss.
#pragma once
#include <vector>

#include "arch/decoder.h"
#include "model/segment.h"

namespace sf::model {

// decoder_segments(decoder, adapters), the last one replaced:
//   "head": hidden.L, labels I64 [B,S] (the token that follows; below 0: nothing to learn here), label_weight F32 []
//           -> loss F32 [] = label_weight * sum of -log p(label); sums F64 [2], detached: that sum, correct predictions
// Only rows with a label pass the final norm and the vocabulary. Requires at least one label (kSoftware otherwise).
std::vector<Segment> sft_segments(const arch::Decoder& decoder, std::span<const arch::Adapter> adapters = {});

}  // namespace sf::model
