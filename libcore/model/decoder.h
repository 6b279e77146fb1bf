// SPDX-License-Identifier: Apache-2.0
// The decoders (Llama, Qwen2, Qwen3, Mistral, and Qwen2 and Qwen3 with experts) as segments. Source:
// models_text_scoring 1.1-1.6.
#pragma once
#include <span>
#include <vector>

#include "arch/adapter.h"
#include "arch/decoder.h"
#include "model/segment.h"

namespace sf::model {

// The segments of arch::describe(decoder), same order, names, parameters and boundaries, with their mathematics.
//   "embed":    ids [B,S] int64 -> hidden.0 [B,S,H] in the embedding's dtype
//   "layers.i": positions [B,S] int64, hidden.i -> hidden.{i+1}
//   "head":     hidden.L -> final_norm [B,S,H], logits [B,S,V]
// A layer also reads the boundary "attention_mask" [B,S] (bool or integer, nonzero = token) where it is given: keys at
// padded places are seen by nobody; what a row of a padded query holds is finite and unspecified. Absent: no padding.
// Visibility (causal, window) counts places in the row, not position ids. Compute dtype is the parameters': fp32 or
// bf16, all parameters of a segment alike. Throws kConfig if `decoder` cannot be described.
// With adapters, of linear layers or of fused experts, a linear layer is y = x W^T + scale * (x A^T) B^T, and its
// segment takes A and B too. Where the boundary "adapters_off" (I64 [1]) is given and not 0, a layer is as without.
std::vector<Segment> decoder_segments(const arch::Decoder& decoder, std::span<const arch::Adapter> adapters = {});

}  // namespace sf::model
