// SPDX-License-Identifier: Apache-2.0
// The plan's shadows of whole chains against the allocator, in every mode: what a round of the engine takes above what
// it holds at rest is predicted within 3 %, and never below.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "model/dflash.h"
#include "model/sft.h"
#include "plan/work.h"
#include "tensor/memory.h"
#include "toy.h"

namespace sf::engine {
namespace {

struct Measured {
  uint64_t predicted = 0, measured = 0;
};

void expect_close(const Measured& work) {
  double excess = static_cast<double>(work.predicted) / static_cast<double>(work.measured) - 1;
  EXPECT_GE(work.predicted, work.measured) << 100 * excess << " %";
  EXPECT_LE(excess, 0.03) << work.predicted << " bytes predicted, " << work.measured << " measured";
}

// The most that one round of a loaded engine holds in tensors besides the engine and the micro-batch.
uint64_t measure(Engine& engine, const arch::ModelSpec& spec, const model::Tensors& batch, const std::string& sums) {
  for (const arch::Parameter& parameter : spec.parameters)
    engine.load(parameter.name, [](int64_t, int64_t, std::span<float> to) { std::fill(to.begin(), to.end(), 0.01f); });
  tensor::mark_memory();
  uint64_t before = tensor::memory().allocated;
  engine.round(batch, "loss", {sums});
  return tensor::memory().peak - before;
}

EngineOptions options_of(Dtype compute, Mode mode) {
  return {.schedule = {.compute = compute, .mode = mode}, .spill_dir = std::filesystem::temp_directory_path()};
}

struct Case {
  const char* name;
  Mode mode;
  Dtype compute;
  int variant = 0;
};

class DflashWork : public ::testing::TestWithParam<Case> {};
class SftWork : public ::testing::TestWithParam<Case> {};

arch::Dflash draft_of(int variant) {
  arch::Dflash d;
  d.vocab = 300, d.hidden = 64, d.intermediate = 96, d.layers = 3, d.heads = 4, d.kv_heads = 2, d.head_dim = 16;
  d.max_positions = 512, d.block = 8, d.mask_token = 99, d.capture_layers = {2, 5, 7};
  d.windows.assign(3, 0);
  if (variant == 1) d.heads = 5, d.kv_heads = 5, d.head_dim = 12, d.bias = true;
  return d;
}

TEST_P(DflashWork, OfARoundIsPredictedWithinThreePercentAndNeverBelow) {
  tensor::install_allocator();
  const Case& c = GetParam();
  const int64_t rows = 2, width = 70, anchors = 6;
  arch::Dflash draft = draft_of(c.variant);
  arch::ModelSpec spec = arch::describe_training(draft, false);
  at::Tensor places = at::arange(anchors, at::kLong).mul(9).add(3).expand({rows, anchors}).contiguous();
  model::Tensors batch{{"input_ids", at::full({rows, width}, 3, at::kLong)},
                       {"loss_mask", at::full({rows, width}, 1, at::kLong)},
                       {"lengths", at::full({rows}, width, at::kLong)},
                       {"anchors", places},
                       {"hidden_states", at::full({rows, width, 3 * draft.hidden}, 0.5, tensor::to_scalar(c.compute))},
                       {"slot_weights", at::full({draft.block}, 0.01, at::kFloat)}};
  plan::DflashBatch shape{{{anchors, 48}, {anchors, 48}}, rows * anchors * (draft.block - 1)};
  auto group = comm::make_single();
  Engine engine(*group, spec, model::dflash_segments(draft, false), options_of(c.compute, c.mode));
  uint64_t predicted = plan::dflash_work(draft, spec, engine.schedule(), shape);
  expect_close({predicted, measure(engine, spec, batch, "slot_sums")});
}

arch::Decoder decoder_of(int variant) {
  arch::Decoder d;
  d.family = variant == 1 ? "qwen3" : "llama";
  d.architecture = "LlamaForCausalLM";
  d.vocab = 300, d.hidden = 64, d.intermediate = 160, d.layers = 4, d.heads = 4, d.kv_heads = 2, d.head_dim = 16;
  d.max_positions = 512, d.tied = variant != 2;
  if (variant == 1) d.qk_norm = true, d.head_dim = 12;
  if (variant == 2) d.qkv_bias = d.o_bias = d.mlp_bias = true, d.vocab = 1000;
  d.windows.assign(4, 0);
  return d;
}

TEST_P(SftWork, OfARoundIsPredictedWithinThreePercentAndNeverBelow) {
  tensor::install_allocator();
  const Case& c = GetParam();
  const int64_t rows = 2, width = 60, labels = 40;
  arch::Decoder decoder = decoder_of(c.variant);
  arch::ModelSpec spec = arch::describe_training(decoder);
  at::Tensor wanted = at::full({rows, width}, -1, at::kLong);
  wanted.narrow(1, width - labels, labels).fill_(5);
  model::Tensors batch{{"ids", at::full({rows, width}, 3, at::kLong)},
                       {"labels", wanted},
                       {"positions", at::arange(width, at::kLong).expand({rows, width}).contiguous()},
                       {"label_weight", at::scalar_tensor(0.01, at::kFloat)}};
  auto group = comm::make_single();
  Engine engine(*group, spec, model::sft_segments(decoder), options_of(c.compute, c.mode));
  uint64_t predicted = plan::sft_work(decoder, spec, engine.schedule(), {rows, width, rows * labels});
  expect_close({predicted, measure(engine, spec, batch, "sums")});
}

TEST(LoraWork, OfARoundIsPredictedWithinThreePercentAndNeverBelow) {
  tensor::install_allocator();
  const int64_t rows = 2, width = 60;
  arch::Decoder decoder = decoder_of(0);
  arch::Lora lora{.rank = 6, .alpha = 12, .targets = {{}, arch::kAllLinear}};
  std::vector<arch::Adapter> adapters = arch::adapters_of(lora, arch::describe(decoder));
  arch::ModelSpec spec = arch::describe_training(decoder, adapters);
  model::Tensors batch{{"ids", at::full({rows, width}, 3, at::kLong)},
                       {"labels", at::full({rows, width}, 5, at::kLong)},
                       {"positions", at::arange(width, at::kLong).expand({rows, width}).contiguous()},
                       {"label_weight", at::scalar_tensor(0.01, at::kFloat)}};
  for (Mode mode : {Mode::kKeep, Mode::kRecompute})
    for (Dtype compute : {Dtype::kF32, Dtype::kBF16}) {
      auto group = comm::make_single();
      Engine engine(*group, spec, model::sft_segments(decoder, adapters), options_of(compute, mode));
      uint64_t predicted = plan::sft_work(decoder, spec, engine.schedule(), {rows, width, rows * width}, adapters);
      expect_close({predicted, measure(engine, spec, batch, "sums")});
    }
}

const auto kCases = ::testing::Values(
    Case{"keep", Mode::kKeep, Dtype::kF32}, Case{"keep_bf16", Mode::kKeep, Dtype::kBF16},
    Case{"recompute", Mode::kRecompute, Dtype::kF32}, Case{"recompute_bf16", Mode::kRecompute, Dtype::kBF16},
    Case{"offload", Mode::kOffload, Dtype::kF32}, Case{"offload_bf16", Mode::kOffload, Dtype::kBF16},
    Case{"odd_heads", Mode::kKeep, Dtype::kF32, 1}, Case{"odd_heads_bf16", Mode::kKeep, Dtype::kBF16, 1},
    Case{"biased", Mode::kKeep, Dtype::kF32, 2}, Case{"biased_bf16", Mode::kRecompute, Dtype::kBF16, 2});
const auto kNames = [](const auto& info) { return info.param.name; };

INSTANTIATE_TEST_SUITE_P(Modes, DflashWork, kCases, kNames);
INSTANTIATE_TEST_SUITE_P(Modes, SftWork, kCases, kNames);

}  // namespace
}  // namespace sf::engine
