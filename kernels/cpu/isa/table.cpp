// SPDX-License-Identifier: Apache-2.0
#include "attention_tile.h"
#include "functions.h"

namespace sf::kernels::SF_ISA {

constexpr Table make() {
  Table t{};
  t.tile_rows = kTileRows;
  t.pack_rows_f32 = pack_rows_f32;
  t.pack_rows_bf16 = pack_rows_bf16;
  t.pack_panels_f32 = pack_panels_f32;
  t.pack_panels_bf16 = pack_panels_bf16;
  t.gemm_f32 = gemm_f32;
  t.gemm_bf16 = gemm_bf16;
  t.summary_f32 = summary_f32;
  t.summary_bf16 = summary_bf16;
  t.adamw = adamw;
  t.fold_add = fold_add;
  t.fold_add_bf16 = fold_add_bf16;
  t.first_non_finite = first_non_finite;
  t.to_bf16 = to_bf16;
  t.from_bf16 = from_bf16;
  t.square_block = square_block;
  t.largest = largest;
  t.to_e4m3 = to_e4m3;
  t.rms_norm = rms_norm;
  t.rms_norm_dx = rms_norm_dx;
  t.rms_norm_dweight = rms_norm_dweight;
  t.swiglu = swiglu;
  t.swiglu_backward = swiglu_backward;
  t.rotary = rotary;
  t.hard_loss = hard_loss;
  t.soft_loss = soft_loss;
  t.distance_loss = distance_loss;
  t.label_loss = label_loss;
  t.attention_tile = kTile;
  t.attention = attention;
  t.attention_scratch = attention_scratch;
  t.attention_backward = attention_backward;
  t.delta_scratch = delta_scratch;
  t.delta_backward_scratch = delta_backward_scratch;
  t.delta_chunks = delta_chunks;
  t.delta_steps = delta_steps;
  t.delta_backward = delta_backward;
  t.conv_silu = conv_silu;
  t.conv_silu_backward = conv_silu_backward;
  return t;
}
const Table kTable = make();

}  // namespace sf::kernels::SF_ISA
