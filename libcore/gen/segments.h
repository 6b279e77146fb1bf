// SPDX-License-Identifier: Apache-2.0
// The target's forward as segments, for ranks that hold a share of each: one segment's weights are packed for its turn
// and given up after it.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "arch/decoder.h"
#include "base/dtype.h"
#include "gen/block.h"
#include "model/segment.h"

namespace sf::gen {

inline constexpr int64_t kCut =
    256;  // positions; a forward of a longer sequence is cut at its multiples (shardforge(7))

BlockShape block_shape(const arch::Decoder& decoder, int64_t layer);

// What a teacher sees of final_norm [n, H], in the compute type.
using Seen = std::function<at::Tensor(const at::Tensor& final_norm)>;

// The segments of arch::describe_states(decoder, with `seen`), with their mathematics; I64 ids and lengths. Sequences
// are computed one after another, in rows cut at multiples of `cut` (0: not cut): the bits of Target::prefill. kData
// for an id outside the vocabulary.
std::vector<model::Segment> states_segments(const arch::Decoder& decoder, Dtype compute, const Seen& seen,
                                            int64_t cut = kCut);

}  // namespace sf::gen
