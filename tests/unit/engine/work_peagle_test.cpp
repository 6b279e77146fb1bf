// SPDX-License-Identifier: Apache-2.0
// The plan's shadow of P-EAGLE against the allocator: within 3 %, and never below.
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>

#include "model/peagle.h"
#include "work_chain.h"

namespace sf::engine {
namespace {

constexpr int64_t kRows = 2, kWidth = 60;

arch::Peagle draft_of(bool odd, int64_t words) {
  arch::Peagle d;
  d.vocab = words + 50, d.draft_vocab = words, d.hidden = d.target_hidden = 64, d.intermediate = 96, d.layers = 3;
  d.heads = 4, d.kv_heads = 2, d.head_dim = 16, d.max_positions = 512, d.mask_token = 9;
  if (odd) d.heads = 5, d.kv_heads = 5, d.head_dim = 12, d.norm_before_residual = true;
  return d;
}

// Depth d holds the first anchors that have a label there, half as many as the depth before.
model::Tensors batch_of(const arch::Peagle& d, Dtype compute, plan::PeagleBatch& sizes) {
  at::ScalarType type = tensor::to_scalar(compute);
  const std::vector<int64_t> drawn{30, 15, 7};
  at::Tensor anchors = at::full({kRows, 52}, -1, at::kLong), depths = at::full({kRows, 52}, -1, at::kLong);
  for (int64_t b = 0; b < kRows; ++b)
    for (int64_t depth = 0, n = 0; depth < std::ssize(drawn); ++depth)
      for (int64_t i = 0; i < drawn[static_cast<size_t>(depth)]; ++i, ++n) {
        anchors.mutable_data_ptr<int64_t>()[b * 52 + n] = i;
        depths.mutable_data_ptr<int64_t>()[b * 52 + n] = depth + 1;
      }
  sizes.rows.assign(kRows, {kWidth, 30, 15, 7});
  sizes.labels = {kRows * (kWidth - 1), kRows * 30, kRows * 15, kRows * 7};
  return {{"input_ids", at::full({kRows, kWidth}, 3, at::kLong)},
          {"loss_mask", at::full({kRows, kWidth}, 1, at::kLong)},
          {"lengths", at::full({kRows}, kWidth, at::kLong)},
          {"target_top1", at::full({kRows, kWidth}, 2, at::kLong)},
          {"target_lse", at::full({kRows, kWidth}, 6.0, at::kFloat)},
          {"hidden_state", at::full({kRows, kWidth, 3 * d.target_hidden}, 0.5, type)},
          {"final_norm", at::full({kRows, kWidth, d.target_hidden}, 0.5, type)},
          {"cod_anchors", anchors},
          {"cod_depths", depths},
          {"label_weight", at::scalar_tensor(0.01, at::kFloat)}};
}

struct Case {
  const char* name;
  Mode mode;
  Dtype compute;
  bool odd = false;
  int64_t words = 200;
};

class PeagleWork : public ::testing::TestWithParam<Case> {};

TEST_P(PeagleWork, OfARoundIsPredictedWithinThreePercentAndNeverBelow) {
  tensor::install_allocator();
  const Case& c = GetParam();
  arch::Peagle draft = draft_of(c.odd, c.words);
  arch::ModelSpec spec = arch::describe_training(draft);
  model::Eagle3Vocabulary words{at::full({draft.vocab}, true, at::kBool), at::full({draft.draft_vocab}, 0, at::kLong)};
  plan::PeagleBatch sizes;
  model::Tensors batch = batch_of(draft, c.compute, sizes);
  auto group = comm::make_single();
  Engine engine(*group, spec, model::peagle_segments(draft, words, {.depths = 4}), options_of(c.compute, c.mode));
  uint64_t predicted = plan::peagle_work(draft, spec, engine.schedule(), sizes);
  expect_close({predicted, measure(engine, spec, batch, "depth_sums")});
}

INSTANTIATE_TEST_SUITE_P(Modes, PeagleWork,
                         ::testing::Values(Case{"keep", Mode::kKeep, Dtype::kF32},
                                           Case{"keep_bf16", Mode::kKeep, Dtype::kBF16},
                                           Case{"recompute", Mode::kRecompute, Dtype::kF32},
                                           Case{"offload_bf16", Mode::kOffload, Dtype::kBF16},
                                           Case{"odd_heads", Mode::kKeep, Dtype::kF32, true},
                                           Case{"odd_heads_bf16", Mode::kRecompute, Dtype::kBF16, true},
                                           Case{"words", Mode::kRecompute, Dtype::kF32, false, 4000},
                                           Case{"words_bf16", Mode::kRecompute, Dtype::kBF16, false, 4000}),
                         [](const auto& info) { return info.param.name; });

TEST(PeagleWork, NoBatchOfItsSizeNeedsMoreThanTheFullOne) {
  const std::vector<double> shares{0.8, 0.64, 0.512};
  plan::PeagleBatch full = plan::full_peagle_batch(kRows, kWidth, shares);
  ASSERT_EQ(full.rows.size(), static_cast<size_t>(kRows));
  EXPECT_EQ(full.rows[0], (std::vector<int64_t>{kWidth, 47, 37, 29}));
  EXPECT_EQ(full.labels[1], kRows * 47);
}

}  // namespace
}  // namespace sf::engine
