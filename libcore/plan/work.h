// SPDX-License-Identifier: Apache-2.0
// Bytes that forward and backward of one micro-batch hold at most, besides its inputs and what a schedule counts: the
// segments of room model, written once more as shadows (plan/tape.h).
#pragma once
#include <cstdint>

#include "arch/eagle3.h"
#include "base/dtype.h"

namespace sf::plan {

// Every index of `rows` x `width` tokens supervised: no batch of this size needs more.
arch::Eagle3Batch full_eagle3_batch(int64_t rows, int64_t width, int unroll, bool reference_quirks);

// The most that one round holds in tensors. `compute`: F32 or BF16.
uint64_t eagle3_work(const arch::Eagle3& draft, int unroll, Dtype compute, const arch::Eagle3Batch& batch);

}  // namespace sf::plan
