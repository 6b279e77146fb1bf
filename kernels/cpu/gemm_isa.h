// SPDX-License-Identifier: Apache-2.0
// The tiles of the packed product, one instantiation an ISA. Raw pointers only (see lanes.h).
#pragma once
#include <cstddef>
#include <cstdint>

#include "sf_kernels/gemm.h"

namespace sf::kernels {

constexpr size_t kMaxTileRows = 12;

// Rows of x by tiles of at most kMaxTileRows, as even as can be: tile t has rows [start(t), start(t + 1)).
struct RowTiles {
  size_t rows = 0, tiles = 0;
  size_t start(size_t t) const { return t * (rows / tiles) + (t < rows % tiles ? t : rows % tiles); }
  size_t size(size_t t) const { return rows / tiles + (t < rows % tiles ? 1 : 0); }
};

// One call's data: x packed as [tile][step][rows of the tile], a step being one k (fp32) or a pair (bf16, as uint32_t).
struct GemmJob {
  const void* x = nullptr;
  RowTiles tiles;
  const void* packed = nullptr;
  size_t n = 0, steps = 0;
  const float* bias = nullptr;
  void* y = nullptr;
  size_t y_row = 0;
  bool narrow = false;  // y holds bf16, not fp32
  bool add = false;     // sums go on from what y holds; not where it is narrow
};

// Partial results of one row over one block of kSummaryColumns columns.
constexpr size_t kSummaryColumns = 512;
struct BlockSummary {
  float top = 0, second = 0, total = 0;  // total: sum of e^(y - top)
  int32_t at = 0;
};

}  // namespace sf::kernels
