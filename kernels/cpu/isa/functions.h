// SPDX-License-Identifier: Apache-2.0
// Declarations of what Table points to, in the namespace of the ISA being compiled.
#pragma once
#include "table.h"

namespace sf::kernels::SF_ISA {

#if defined(__AVX512F__)
constexpr size_t kTileRows = 12;
#else
constexpr size_t kTileRows = 6;
#endif

void pack_rows_f32(Matrix<const float> x, size_t k, RowTiles tiles, float* out);
void pack_rows_bf16(Matrix<const uint16_t> x, size_t k, RowTiles tiles, uint32_t* out);
void pack_panels_f32(Matrix<const float> w, size_t n, size_t k, size_t begin, size_t end, float* packed);
void pack_panels_bf16(Matrix<const uint16_t> w, size_t n, size_t k, size_t begin, size_t end, uint16_t* packed);
void gemm_f32(const GemmJob& job, size_t begin, size_t end);
void gemm_bf16(const GemmJob& job, size_t begin, size_t end);
void summary_f32(const GemmJob& job, size_t begin, size_t end, size_t blocks, BlockSummary* out);
void summary_bf16(const GemmJob& job, size_t begin, size_t end, size_t blocks, BlockSummary* out);

void adamw(float* p, const float* grad, float* m, float* v, size_t n, const AdamWConstants& c);
void fold_add(float* acc, const float* g, size_t n);
void fold_add_bf16(float* acc, const uint16_t* g, size_t n);
size_t first_non_finite(const float* values, size_t n);
void to_bf16(const float* from, uint16_t* to, size_t n);
void from_bf16(const uint16_t* from, float* to, size_t n);

}  // namespace sf::kernels::SF_ISA
