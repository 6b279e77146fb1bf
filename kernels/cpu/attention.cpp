// SPDX-License-Identifier: Apache-2.0
#include "sf_kernels/attention.h"

#include <memory>

#include "table.h"

namespace sf::kernels {

void attention(const Attention& op, Heads<float> out, float* lse, const Parallel& parallel) {
  const size_t list = op.rows * (op.heads / op.kv_heads), tile = table().attention_tile;
  run(parallel, op.batch * op.kv_heads * ((list + tile - 1) / tile),
      [&](size_t begin, size_t end) { table().attention(op, out, lse, begin, end); });
}

void attention_backward(const Attention& op, const AttentionGradient& gradient, const Parallel& parallel) {
  run(parallel, op.batch * op.kv_heads, [&](size_t begin, size_t end) {
    const auto scratch = std::make_unique<std::byte[]>(table().attention_scratch(op));
    table().attention_backward(op, gradient, scratch.get(), begin, end);
  });
}

}  // namespace sf::kernels
