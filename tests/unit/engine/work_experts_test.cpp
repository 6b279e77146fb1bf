// SPDX-License-Identifier: Apache-2.0
// What layers with experts hold, planned against the allocator: within 3 % where the plan is told how many tokens each
// expert gets, and never below where it is not.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>

#include "model/sft.h"
#include "work_chain.h"

namespace sf::engine {
namespace {

struct Routed {
  const char* name;
  Mode mode;
  Dtype compute;
  std::vector<std::string> experts, layers;  // with adapters
  bool shared = true;
};

arch::Decoder routed_decoder(bool shared) {
  arch::Decoder d;
  d.family = "qwen3_moe", d.architecture = "Qwen3MoeForCausalLM";
  d.vocab = 300, d.hidden = 64, d.intermediate = 160, d.layers = 4, d.heads = 4, d.kv_heads = 2, d.head_dim = 16;
  d.max_positions = 512, d.tied = true, d.qk_norm = true;
  d.windows.assign(4, 0);
  d.experts = {.count = 6, .chosen = 2, .width = 80, .normalise = true};
  d.experts.layers = {true, true, false, true};
  if (!shared) return d;
  d.family = "qwen2_moe", d.architecture = "Qwen2MoeForCausalLM", d.qk_norm = false;
  d.experts.shared_width = 96, d.experts.normalise = false;
  return d;
}

class RoutedWork : public ::testing::TestWithParam<Routed> {
 protected:
  // A round over `ids`, with parameters that differ by `spread`; `experts`: what the plan is told.
  static Measured of(const at::Tensor& ids, float spread, std::vector<int64_t> experts) {
    tensor::install_allocator();
    const Routed& c = GetParam();
    const int64_t rows = ids.size(0), width = ids.size(1);
    arch::Decoder decoder = routed_decoder(c.shared);
    arch::Lora lora;
    lora.rank = 6, lora.alpha = 12, lora.targets.names = c.layers, lora.parameters = c.experts;
    std::vector<arch::Adapter> adapters;
    if (!c.experts.empty() || !c.layers.empty()) adapters = arch::adapters_of(lora, arch::describe(decoder));
    arch::ModelSpec spec = arch::describe_training(decoder, adapters);
    model::Tensors batch{{"ids", ids},
                         {"labels", at::full({rows, width}, 5, at::kLong)},
                         {"positions", at::arange(width, at::kLong).expand({rows, width}).contiguous()},
                         {"label_weight", at::scalar_tensor(0.01, at::kFloat)}};
    auto group = comm::make_single();
    Engine engine(*group, spec, model::sft_segments(decoder, adapters), options_of(c.compute, c.mode));
    uint64_t predicted =
        plan::sft_work(decoder, spec, engine.schedule(), {rows, width, rows * width, experts}, adapters);
    return {predicted, measure(engine, spec, batch, "sums", spread)};
  }
};

// All tokens alike choose the same experts.
TEST_P(RoutedWork, OfKnownChoicesIsPredictedWithinThreePercentAndNeverBelow) {
  expect_close(of(at::full({2, 60}, 3, at::kLong), 0, {120, 120, 0, 0, 0, 0}));
}

// Tokens over experts add up to tokens x chosen, however they spread. The most is above an even spread by what one
// expert holds while it computes for all tokens in place of a third of them: a seventh of all here, with three such
// layers.
TEST_P(RoutedWork, OfAnyChoicesIsNeverBelowAndAtMostASeventhAbove) {
  const at::Tensor different = at::arange(120, at::kLong).mul(7).remainder(299).view({2, 60}).contiguous();
  for (const Measured& work : {of(different, 0.2f, {}), of(at::full({2, 60}, 3, at::kLong), 0, {})}) {
    EXPECT_GE(work.predicted, work.measured);
    EXPECT_LE(static_cast<double>(work.predicted), static_cast<double>(work.measured) * 8 / 7);
  }
}

const std::vector<std::string> kFused{"experts.gate_up_proj", "experts.down_proj"}, kDense{"q_proj", "o_proj"};
INSTANTIATE_TEST_SUITE_P(Modes, RoutedWork,
                         ::testing::Values(Routed{"keep", Mode::kKeep, Dtype::kF32, {}, {}},
                                           Routed{"keep_bf16", Mode::kKeep, Dtype::kBF16, {}, {}},
                                           Routed{"qwen3", Mode::kKeep, Dtype::kF32, {}, {}, false},
                                           Routed{"qwen3_bf16", Mode::kRecompute, Dtype::kBF16, {}, {}, false},
                                           Routed{"recompute", Mode::kRecompute, Dtype::kF32, {}, {}},
                                           Routed{"offload", Mode::kOffload, Dtype::kF32, {}, {}},
                                           Routed{"dense_adapters", Mode::kKeep, Dtype::kF32, {}, kDense, false},
                                           Routed{"expert_adapters", Mode::kKeep, Dtype::kF32, kFused, {}, false},
                                           Routed{"adapters", Mode::kKeep, Dtype::kF32, kFused, kDense},
                                           Routed{"adapters_bf16", Mode::kRecompute, Dtype::kBF16, kFused, kDense}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace sf::engine
