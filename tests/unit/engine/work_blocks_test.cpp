// SPDX-License-Identifier: Apache-2.0
// The plan's shadows of drafts of blocks against the allocator, in every mode: what a round of the engine takes above
// what it holds at rest is predicted within 3 %, and never below.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>

#include "model/dflash.h"
#include "model/dflash2.h"
#include "model/domino.h"
#include "model/dspark.h"
#include "work_chain.h"

namespace sf::engine {
namespace {

struct Family {
  arch::ModelSpec spec;
  std::vector<model::Segment> segments;
  std::function<uint64_t(const plan::BlockRun&)> work;
  int64_t labels_of_block = 0;
};

void shape(arch::Dflash& d, bool odd, int64_t vocab) {
  d.vocab = vocab, d.hidden = 64, d.intermediate = 96, d.layers = 3, d.heads = 4, d.kv_heads = 2, d.head_dim = 16;
  d.max_positions = 512, d.block = 8, d.mask_token = 99, d.capture_layers = {2, 5, 7};
  d.windows = {0, odd ? 5 : 0, 0};
  if (odd) d.heads = 5, d.kv_heads = 5, d.head_dim = 12, d.bias = true;
}

Family dflash(int variant, int64_t vocab) {
  arch::Dflash d;
  shape(d, variant == 1, vocab);
  return {arch::describe_training(d, false), model::dflash_segments(d, false),
          [d](const plan::BlockRun& run) { return plan::dflash_work(d, run); }, d.block - 1};
}

Family dflash2(int variant, int64_t vocab) {
  arch::Dflash2 d;
  shape(d, variant == 1, vocab);
  d.rank = 24, d.top_k = 6;
  if (variant == 1) d.softcap = 20, d.embedding_scale = 8, d.taps = 3;
  model::Dflash2Options options{.selector_stop_gradient = variant == 2};
  return {arch::describe_training(d, false), model::dflash2_segments(d, false, options),
          [d, variant](const plan::BlockRun& run) { return plan::dflash2_work(d, run, variant == 2); }, d.block - 1};
}

// Variants: the three kinds of Markov head; 3: none, cross-entropy alone.
Family dspark(int variant, int64_t vocab) {
  arch::Dspark d;
  shape(d, variant == 1, vocab);
  d.rank = variant == 3 ? 0 : 24, d.markov = static_cast<arch::Markov>(variant % 3);
  d.confidence = variant != 3, d.confidence_with_markov = variant == 1;
  model::DsparkOptions options;
  if (variant == 3) options.l1_alpha = 0, options.ce_alpha = 1, options.confidence_alpha = 0;
  return {arch::describe_training(d, false), model::dspark_segments(d, false, options),
          [=](const plan::BlockRun& run) {
            return plan::dspark_work(d, run, {variant != 3, variant != 3});
          },
          d.block};
}

Family domino(int variant, int64_t vocab) {
  arch::Domino d;
  shape(d, variant == 1, vocab);
  d.projection = 24, d.state = 40, d.prefix = variant == 2 ? 3 : 1, d.shift_label = variant != 1;
  return {arch::describe_training(d, false), model::domino_segments(d, false),
          [d](const plan::BlockRun& run) { return plan::domino_work(d, run); }, d.block - (variant == 1)};
}

struct Case {
  const char* name;
  Family (*family)(int variant, int64_t vocab);
  int variant = 0;
  Mode mode = Mode::kKeep;
  Dtype compute = Dtype::kF32;
  int64_t vocab = 700;  // small: the layers need most; large: the heads
};

class BlockWork : public ::testing::TestWithParam<Case> {};

TEST_P(BlockWork, OfARoundIsPredictedWithinThreePercentAndNeverBelow) {
  tensor::install_allocator();
  const Case& c = GetParam();
  const int64_t rows = 2, width = 120, anchors = 10, block = 8;
  Family family = c.family(c.variant, c.vocab);
  at::ScalarType type = tensor::to_scalar(c.compute);
  at::Tensor places = at::arange(anchors, at::kLong).mul(9).add(3).expand({rows, anchors}).contiguous();
  model::Tensors batch{{"input_ids", at::full({rows, width}, 3, at::kLong)},
                       {"loss_mask", at::full({rows, width}, 1, at::kLong)},
                       {"lengths", at::full({rows}, width, at::kLong)},
                       {"anchors", places},
                       {"hidden_states", at::full({rows, width, 3 * 64}, 0.5, type)},
                       {"final_norm", at::full({rows, width, 64}, 0.5, type)},
                       {"selector_share", at::scalar_tensor(0.5, at::kFloat)},
                       {"base_share", at::scalar_tensor(0.5, at::kFloat)},
                       {"slot_weights", at::full({block}, 0.01, at::kFloat)}};
  plan::DflashBatch shape{{{anchors, 84}, {anchors, 84}}, rows * anchors * family.labels_of_block};
  auto group = comm::make_single();
  Engine engine(*group, family.spec, family.segments, options_of(c.compute, c.mode));
  uint64_t predicted = family.work({family.spec, engine.schedule(), shape});
  expect_close({predicted, measure(engine, family.spec, batch, "slot_sums")});
}

INSTANTIATE_TEST_SUITE_P(
    Families, BlockWork,
    ::testing::Values(Case{"dflash", dflash}, Case{"dflash_bf16", dflash, 0, Mode::kKeep, Dtype::kBF16},
                      Case{"dflash_recompute", dflash, 0, Mode::kRecompute},
                      Case{"dflash_recompute_bf16", dflash, 0, Mode::kRecompute, Dtype::kBF16},
                      Case{"dflash_offload", dflash, 0, Mode::kOffload},
                      Case{"dflash_offload_bf16", dflash, 0, Mode::kOffload, Dtype::kBF16},
                      Case{"dflash_odd", dflash, 1}, Case{"dflash_odd_bf16", dflash, 1, Mode::kKeep, Dtype::kBF16},
                      Case{"dflash2", dflash2}, Case{"dflash2_bf16", dflash2, 0, Mode::kKeep, Dtype::kBF16},
                      Case{"dflash2_recompute", dflash2, 2, Mode::kRecompute}, Case{"dflash2_odd", dflash2, 1},
                      Case{"dflash2_odd_bf16", dflash2, 1, Mode::kRecompute, Dtype::kBF16}, Case{"dspark", dspark},
                      Case{"dspark_bf16", dspark, 0, Mode::kKeep, Dtype::kBF16}, Case{"dspark_gated", dspark, 1},
                      Case{"dspark_rnn", dspark, 2, Mode::kRecompute},
                      Case{"dspark_rnn_bf16", dspark, 2, Mode::kOffload, Dtype::kBF16},
                      Case{"dspark_plain", dspark, 3, Mode::kRecompute}, Case{"domino", domino},
                      Case{"domino_bf16", domino, 0, Mode::kKeep, Dtype::kBF16},
                      Case{"domino_odd", domino, 1, Mode::kRecompute},
                      Case{"domino_prefix_bf16", domino, 2, Mode::kRecompute, Dtype::kBF16},
                      Case{"dflash2_words", dflash2, 0, Mode::kRecompute, Dtype::kF32, 6000},
                      Case{"dflash2_words_bf16", dflash2, 0, Mode::kRecompute, Dtype::kBF16, 6000},
                      Case{"dspark_words", dspark, 0, Mode::kRecompute, Dtype::kF32, 6000},
                      Case{"dspark_words_bf16", dspark, 0, Mode::kRecompute, Dtype::kBF16, 6000},
                      Case{"domino_words", domino, 0, Mode::kRecompute, Dtype::kF32, 6000},
                      Case{"domino_words_bf16", domino, 0, Mode::kRecompute, Dtype::kBF16, 6000},
                      Case{"dflash2_capped_words", dflash2, 1, Mode::kRecompute, Dtype::kBF16, 6000},
                      Case{"dspark_plain_words", dspark, 3, Mode::kRecompute, Dtype::kF32, 6000}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace sf::engine
