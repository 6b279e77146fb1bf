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
float largest(const float* values, size_t n);
void to_e4m3(const float* from, uint8_t* to, size_t n, float factor);

bool square_block(const float* values, size_t n, SquareBlock& out);
void rms_norm(const RmsNorm& op, void* y, float* rstd, size_t begin, size_t end);
void rms_norm_dx(const RmsNorm& op, const void* g, const float* rstd, void* dx, size_t begin, size_t end);
void rms_norm_dweight(const RmsNorm& op, const void* g, const float* rstd, float* dweight, size_t begin, size_t end);
void swiglu(Type type, const void* gate, const void* up, void* y, size_t begin, size_t end);
void swiglu_backward(Type type, const void* gate, const void* up, const void* g, void* dgate, void* dup, size_t begin,
                     size_t end);
void rotary(const Rotary& op, size_t begin, size_t end);
void hard_loss(const HardLoss& op, HardRow* out, size_t begin, size_t end);
void soft_loss(const SoftLoss& op, SoftRow* out, size_t begin, size_t end);
void distance_loss(const DistanceLoss& op, DistanceRow* out, size_t begin, size_t end);
void label_loss(const LabelLoss& op, LabelRow* seen, size_t begin, size_t end);

void attention(const Attention& op, Heads<float> out, float* lse, size_t begin, size_t end);
size_t attention_scratch(const Attention& op);
void attention_backward(const Attention& op, const AttentionGradient& gradient, void* scratch, size_t begin,
                        size_t end);

size_t delta_scratch(const Delta& op);
size_t delta_backward_scratch(const Delta& op);
void delta_chunks(const Delta& op, void* out, float* states, float* scratch, size_t begin, size_t end);
void delta_steps(const Delta& op, void* out, float* state, float* scratch, size_t begin, size_t end);
void delta_backward(const Delta& op, const DeltaGradient& gradient, float* scratch, size_t begin, size_t end);
void conv_silu(const Convolution& op, void* y, size_t begin, size_t end);
void conv_silu_backward(const Convolution& op, const void* g, void* dx, float* dweight, float* scratch, size_t begin,
                        size_t end);

}  // namespace sf::kernels::SF_ISA
