// SPDX-License-Identifier: Apache-2.0
// The plan's shadows of whole chains against the allocator, in every mode: what a round of the engine takes above what
// it holds at rest is predicted within 3 %, and never below.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>

#include "model/sft.h"
#include "work_chain.h"

namespace sf::engine {
namespace {

struct Case {
  const char* name;
  Mode mode;
  Dtype compute;
  int variant = 0;
};

class SftWork : public ::testing::TestWithParam<Case> {};

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

INSTANTIATE_TEST_SUITE_P(Modes, SftWork, kCases, kNames);

}  // namespace
}  // namespace sf::engine
