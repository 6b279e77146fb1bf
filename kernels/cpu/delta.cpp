// SPDX-License-Identifier: Apache-2.0
#include "sf_kernels/delta.h"

#include <memory>

#include "table.h"

namespace sf::kernels {

namespace {

size_t chunks_of(const Delta& op) {
  return (op.length + kDeltaChunk - 1) / kDeltaChunk;
}

}  // namespace

size_t delta_state_floats(const Delta& op) {
  return op.batch * chunks_of(op) * op.value_heads * op.key_dim * op.value_dim;
}

void delta_steps(const Delta& op, void* out, float* state, const Parallel& parallel) {
  run(parallel, op.batch * op.value_heads, [&](size_t begin, size_t end) {
    const auto scratch = std::make_unique<float[]>(2 * (op.key_dim + 16));
    table().delta_steps(op, out, state, scratch.get(), begin, end);
  });
}

void delta_chunks(const Delta& op, void* out, float* states, const Parallel& parallel) {
  run(parallel, op.batch * op.key_heads, [&](size_t begin, size_t end) {
    const auto scratch = std::make_unique<float[]>(table().delta_scratch(op));
    table().delta_chunks(op, out, states, scratch.get(), begin, end);
  });
}

void delta_backward(const Delta& op, const DeltaGradient& gradient, const Parallel& parallel) {
  run(parallel, op.batch * op.key_heads, [&](size_t begin, size_t end) {
    const auto scratch = std::make_unique<float[]>(table().delta_backward_scratch(op));
    table().delta_backward(op, gradient, scratch.get(), begin, end);
  });
}

void conv_silu(const Convolution& op, void* y, const Parallel& parallel) {
  constexpr size_t kGrain = 16 << 10;  // elements a piece has at least
  const size_t tokens = op.batch * op.length, chunk = op.channels >= kGrain ? 1 : kGrain / op.channels;
  run(parallel, (tokens + chunk - 1) / chunk, [&](size_t begin, size_t end) {
    table().conv_silu(op, y, begin * chunk, end * chunk < tokens ? end * chunk : tokens);
  });
}

void conv_silu_backward(const Convolution& op, const void* g, void* dx, float* dweight, const Parallel& parallel) {
  run(parallel, (op.channels + kConvolutionBlock - 1) / kConvolutionBlock, [&](size_t begin, size_t end) {
    const auto scratch = std::make_unique<float[]>(op.length * kConvolutionBlock);
    table().conv_silu_backward(op, g, dx, dweight, scratch.get(), begin, end);
  });
}

}  // namespace sf::kernels
