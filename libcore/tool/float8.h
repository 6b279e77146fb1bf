// SPDX-License-Identifier: Apache-2.0
// Weights stored as float8_e4m3fn with one scale a block of 128 x 128: value = element * weight_scale_inv[block].
// Source: DeepSeek-V3's and Qwen3's FP8 checkpoints. Private to this room.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "tool/tensor_set.h"

namespace sf::tool {

float e4m3_to_float(uint8_t bits);  // no infinities; 0x7f and 0xff are NaN

struct Float8 {
  StoredTensor weight, scale;  // [rows, columns] F8_E4M3; [rows / block, columns / block] rounded up, floating
  int64_t block_rows = 128, block_columns = 128;
};

// kData unless shapes and types fit.
void check_float8(const Float8& tensor);
// Products in fp32, rounded once to `as`, in order, at most kBounceBytes of values at a time (one row at least).
void dequantise(const Float8& tensor, Dtype as, const ckpt::TensorSource::Sink& sink);

}  // namespace sf::tool
