// SPDX-License-Identifier: Apache-2.0
// Matrix product with packed weights: y[m, n] = sum over k of x[m, k] * w[n, k], k ascending, one sum an element. An
// element's bits depend on its row of x and its row of w alone.
#pragma once
#include <cstddef>
#include <cstdint>

#include "sf_kernels/parallel.h"

namespace sf::kernels {

constexpr size_t kPanel = 16;  // rows of w side by side in one panel

// A matrix by strides, in elements.
template <typename T>
struct Matrix {
  T* data = nullptr;
  size_t row = 0, column = 1;
};

// fp32 panels: packed[panel][k][16]. bf16 panels: packed[panel][k / 2][16][2], K padded to even. Rows beyond N are
// zero.
size_t packed_f32_size(size_t n, size_t k);   // floats
size_t packed_bf16_size(size_t n, size_t k);  // uint16_t
void pack_f32(Matrix<const float> w, size_t n, size_t k, float* packed, const Parallel& parallel = {});
void pack_bf16(Matrix<const uint16_t> w, size_t n, size_t k, uint16_t* packed, const Parallel& parallel = {});

// fp32: acc = fma(x[k], w[k], acc), starting from 0. y.column must be 1. bias (n floats, may be null) is added last.
void gemm_f32(Matrix<const float> x, size_t m, const float* packed, size_t n, size_t k, const float* bias,
              Matrix<float> y, const Parallel& parallel = {});
// bf16: for each pair, acc = fma(x[2i], w[2i], fma(x[2i+1], w[2i+1], acc)) with subnormal inputs and sums as zero, as
// VDPBF16PS does.
void gemm_bf16(Matrix<const uint16_t> x, size_t m, const uint16_t* packed, size_t n, size_t k, const float* bias,
               Matrix<float> y, const Parallel& parallel = {});
// The same, each sum rounded to bf16 as to_bf16() does.
void gemm_bf16_narrow(Matrix<const uint16_t> x, size_t m, const uint16_t* packed, size_t n, size_t k, const float* bias,
                      Matrix<uint16_t> y, const Parallel& parallel = {});
// The sums of gemm_f32 and gemm_bf16, going on from what y holds: a product cut along k (bf16: at even places) keeps
// its bits.
void gemm_f32_add(Matrix<const float> x, size_t m, const float* packed, size_t n, size_t k, Matrix<float> y,
                  const Parallel& parallel = {});
void gemm_bf16_add(Matrix<const uint16_t> x, size_t m, const uint16_t* packed, size_t n, size_t k, Matrix<float> y,
                   const Parallel& parallel = {});

// For each row: the argmax (lowest n wins), max - second max, and log-sum-exp of the row of y, which is never stored.
struct RowSummary {
  int32_t top1 = 0;
  float margin = 0, lse = 0;
};
void gemm_f32_summary(Matrix<const float> x, size_t m, const float* packed, size_t n, size_t k, RowSummary* out,
                      const Parallel& parallel = {});
void gemm_bf16_summary(Matrix<const uint16_t> x, size_t m, const uint16_t* packed, size_t n, size_t k, RowSummary* out,
                       const Parallel& parallel = {});

namespace reference {
void gemm_f32(Matrix<const float> x, size_t m, Matrix<const float> w, size_t n, size_t k, const float* bias,
              Matrix<float> y);
void gemm_bf16(Matrix<const uint16_t> x, size_t m, Matrix<const uint16_t> w, size_t n, size_t k, const float* bias,
               Matrix<float> y);
}  // namespace reference

}  // namespace sf::kernels
