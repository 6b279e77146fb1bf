// SPDX-License-Identifier: Apache-2.0
// Row-wise operators: RMSNorm, gated activation, rotary embedding. A row's result depends on that row alone; everything
// is computed in fp32. Activations are fp32 or bf16 (Type), statistics and weight gradients fp32.
#pragma once
#include <cstddef>
#include <cstdint>

#include "sf_kernels/parallel.h"

namespace sf::kernels {

enum class Type { kF32, kBF16 };

// y = round(x * rstd) * weight, rstd = 1 / sqrt(mean(x^2) + eps); `round` is to the activation's type. If centred, y =
// round(x * rstd * (1 + weight)). Rows are `width` elements, `x_row` apart in x and `width` apart elsewhere; row r has
// row r % period of weight.
struct RmsNorm {
  Type type = Type::kF32;
  size_t rows = 0, width = 0, x_row = 0;
  float eps = 0;
  bool centred = false;
  size_t period = 1;
  const void* x = nullptr;
  const void* weight = nullptr;
};
void rms_norm(const RmsNorm& op, void* y, float* rstd, const Parallel& parallel = {});
// g: gradient of y. dx in the activation's type or null; dweight fp32 [period, width] or null, summed over rows in row
// order.
void rms_norm_backward(const RmsNorm& op, const void* g, const float* rstd, void* dx, float* dweight,
                       const Parallel& parallel = {});

// y = gate * sigmoid(gate) * up, n elements.
void swiglu(Type type, const void* gate, const void* up, void* y, size_t n, const Parallel& parallel = {});
void swiglu_backward(Type type, const void* gate, const void* up, const void* g, void* dgate, void* dup, size_t n,
                     const Parallel& parallel = {});

// x, y: [batch, heads, length, dims] by strides in elements, the last one 1. Token (b, s) turns by row
// positions[b * position_row + s] of cos and sin, [.., half] each: y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin, where x1
// is [0, half), x2 [half, 2 half); elements from 2 half on are copied. `inverse` turns the other way (the gradient).
struct Rotary {
  Type type = Type::kF32;
  size_t batch = 0, heads = 0, length = 0, dims = 0, half = 0;
  const void* x = nullptr;
  size_t x_batch = 0, x_head = 0, x_token = 0;
  void* y = nullptr;
  size_t y_batch = 0, y_head = 0, y_token = 0;
  const float* cos = nullptr;
  const float* sin = nullptr;
  const int64_t* positions = nullptr;
  size_t position_row = 0;
  bool inverse = false;
};
void rotary(const Rotary& op, const Parallel& parallel = {});

namespace reference {
void rms_norm(const RmsNorm& op, void* y, float* rstd);
void swiglu(Type type, const void* gate, const void* up, void* y, size_t n);
void rotary(const Rotary& op);
}  // namespace reference

}  // namespace sf::kernels
