// SPDX-License-Identifier: Apache-2.0
// A small EAGLE3 draft and its micro-batches.
#pragma once
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <string_view>
#include <vector>

#include "base/rng.h"
#include "model/eagle3.h"
#include "tensor/convert.h"

namespace sf::engine::toy {

inline constexpr int64_t kRows = 2, kTokens = 23;

struct Draft {
  arch::Eagle3 config;
  model::Eagle3Vocabulary vocabulary;
  model::Eagle3Options options;

  Draft() {
    config.vocab = 97, config.draft_vocab = 41, config.hidden = 32, config.target_hidden = 32, config.intermediate = 48;
    config.heads = 4, config.kv_heads = 2, config.head_dim = 8, config.max_positions = 64;
    vocabulary.t2d = at::zeros({config.vocab}, at::kBool);
    vocabulary.d2t = at::zeros({config.draft_vocab}, at::kLong);
    for (int64_t i = 0; i < config.draft_vocab; ++i) {  // even ids
      vocabulary.t2d.mutable_data_ptr<bool>()[2 * i] = true;
      vocabulary.d2t.mutable_data_ptr<int64_t>()[i] = i;
    }
  }
};

inline at::Tensor random(uint64_t number, std::string_view what, std::vector<int64_t> shape, double scale) {
  Rng rng(21, what);
  at::Tensor values = at::zeros(shape, at::kFloat);
  for (int64_t i = 0; i < values.numel(); ++i) {
    values.mutable_data_ptr<float>()[i] = rng.normal(number, static_cast<uint64_t>(i)) * static_cast<float>(scale);
  }
  return values;
}

inline at::Tensor words(uint64_t number, std::string_view what, int64_t bound, int64_t step) {
  Rng rng(22, what);
  at::Tensor values = at::zeros({kRows, kTokens}, at::kLong);
  for (int64_t i = 0; i < values.numel(); ++i) {
    values.mutable_data_ptr<int64_t>()[i] =
        static_cast<int64_t>(rng.below(static_cast<uint64_t>(bound), number, static_cast<uint64_t>(i))) * step;
  }
  return values;
}

inline model::Tensors eagle3_batch(const Draft& draft, uint64_t number, Dtype compute) {
  int64_t h = draft.config.target_hidden;
  at::ScalarType type = tensor::to_scalar(compute);
  at::Tensor lengths = at::full({kRows}, kTokens, at::kLong);
  lengths.mutable_data_ptr<int64_t>()[1] = 9 + static_cast<int64_t>(number % 7);
  return {{"input_ids", words(number, "ids", draft.config.vocab, 1)},
          {"loss_mask", at::full({kRows, kTokens}, 1, at::kLong)},
          {"target_top1", words(number, "top1", draft.config.draft_vocab, 2)},
          {"hidden_state", random(number, "captured", {kRows, kTokens, 3 * h}, 1).to(type)},
          {"final_norm", random(number, "norm", {kRows, kTokens, h}, 1).to(type)},
          {"target_lse", at::full({kRows, kTokens}, 6.0, at::kFloat)},
          {"lengths", lengths},
          {"step_weights", at::full({draft.options.unroll}, 0.01, at::kFloat)}};
}

}  // namespace sf::engine::toy
