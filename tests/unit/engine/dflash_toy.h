// SPDX-License-Identifier: Apache-2.0
// A small DFlash draft and its micro-batches.
#pragma once
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "base/rng.h"
#include "model/dflash.h"
#include "tensor/convert.h"

namespace sf::engine::toy {

inline arch::Dflash draft() {
  arch::Dflash d;
  d.vocab = 101, d.hidden = 16, d.intermediate = 24, d.layers = 2, d.heads = 4, d.kv_heads = 2, d.head_dim = 8;
  d.max_positions = 64, d.block = 4, d.mask_token = 99, d.capture_layers = {2, 5};
  return d;
}

inline model::Tensors dflash_batch(uint64_t number, Dtype compute) {
  constexpr int64_t kRows = 2, kTokens = 19;
  Rng rng(31, "dflash batch");
  at::Tensor ids = at::zeros({kRows, kTokens}, at::kLong), states = at::zeros({kRows, kTokens, 32}, at::kFloat);
  for (int64_t i = 0; i < ids.numel(); ++i)
    ids.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(rng.below(99, number, static_cast<uint64_t>(i)));
  for (int64_t i = 0; i < states.numel(); ++i)
    states.mutable_data_ptr<float>()[i] = rng.normal(number, 1000 + static_cast<uint64_t>(i));
  int64_t last = 3 + static_cast<int64_t>(number % 9);
  return {{"input_ids", ids},
          {"loss_mask", at::full({kRows, kTokens}, 1, at::kLong)},
          {"lengths", at::full({kRows}, kTokens, at::kLong)},
          {"anchors", at::tensor({0l, 2l, last, 5l, 17l, -1l}, at::kLong).view({kRows, 3})},
          {"hidden_states", states.to(tensor::to_scalar(compute))},
          {"slot_weights", at::tensor({0.0f, 0.02f, 0.015f, 0.01f})}};
}

}  // namespace sf::engine::toy
