// SPDX-License-Identifier: Apache-2.0
#include "ckpt/adapter.h"

#include <gtest/gtest.h>

#include "scratch.h"

namespace sf::ckpt {
namespace {

HostTensor values(Shape shape, std::vector<float> list) {
  HostTensor tensor(Dtype::kF32, std::move(shape));
  std::copy(list.begin(), list.end(), tensor.as<float>().begin());
  return tensor;
}

// One layer: a matrix [3, 2], and a fused parameter of two experts, [2, 1, 1].
arch::ModelSpec target() {
  arch::ModelSpec spec;
  spec.parameters = {{"model.layers.0.self_attn.q_proj.weight", {3, 2}},
                     {"model.layers.0.mlp.experts.down_proj", {2, 1, 1}}};
  spec.segments = {{.name = "layers.0", .parameters = {spec.parameters[0].name, spec.parameters[1].name}}};
  return spec;
}

using Named = std::vector<std::pair<std::string, HostTensor>>;

// The numbers of rl_lora L-06: rank 2, scale 1; rows of A are e * rank + k, columns of B k * experts + e.
Named tensors() {
  const std::string at = "base_model.model.model.layers.0.";
  return {{at + "self_attn.q_proj.lora_A.weight", values({2, 2}, {1, 2, 3, 4})},
          {at + "self_attn.q_proj.lora_B.weight", values({3, 2}, {1, 0, 0, 1, 10, 100})},
          {at + "mlp.experts.lora_A.weight", values({4, 1}, {1, 2, 3, 4})},
          {at + "mlp.experts.lora_B.weight", values({1, 4}, {10, 20, 30, 40})}};
}

struct Case {
  Scratch scratch;
  arch::Lora lora{.rank = 2, .alpha = 2, .targets = {{"q_proj"}, {}}, .parameters = {"experts.down_proj"}};

  AdapterFiles open(const Named& named) {
    std::filesystem::create_directory(scratch / "adapter");
    std::vector<std::pair<std::string, TensorView>> views;
    for (const auto& [name, tensor] : named) views.emplace_back(name, tensor.view());
    write_safetensors(scratch / "adapter" / "adapter_model.safetensors", views);
    write_atomic(scratch / "adapter" / "adapter_config.json", arch::lora_to_config(lora).dump(2));
    return AdapterFiles::open(scratch / "adapter", target());
  }
};

TEST(AdapterFiles, ExpertsHaveRowsOfAByExpertAndColumnsOfBByRank) {
  Case c;
  AdapterFiles adapter = c.open(tensors());
  std::vector<float> w{0, 0};
  adapter.add_to(*adapter.find("model.layers.0.mlp.experts.down_proj"), 0, 2, w);
  EXPECT_EQ(w, (std::vector<float>{70, 220}));
}

TEST(AdapterFiles, ALinearLayerGainsTheScaledProduct) {
  Case c;
  c.lora.alpha = 1;
  AdapterFiles adapter = c.open(tensors());
  std::vector<float> w{1, 1, 1, 1, 1, 1};
  adapter.add_to(*adapter.find("model.layers.0.self_attn.q_proj.weight"), 0, 6, w);
  EXPECT_EQ(w, (std::vector<float>{1.5f, 2, 2.5f, 3, 156, 211}));
  EXPECT_EQ(adapter.find("model.norm.weight"), nullptr);
}

TEST(AdapterFiles, HowAParameterIsCutChangesNoBit) {
  Case c;
  AdapterFiles adapter = c.open(tensors());
  const arch::Adapter& own = *adapter.find("model.layers.0.self_attn.q_proj.weight");
  std::vector<float> whole(6, 0.1f), parts(6, 0.1f);
  adapter.add_to(own, 0, 6, whole);
  for (auto [lo, hi] : {std::pair{0, 1}, {1, 4}, {4, 4}, {4, 6}})
    adapter.add_to(own, lo, hi, std::span(parts).subspan(static_cast<size_t>(lo), static_cast<size_t>(hi - lo)));
  EXPECT_EQ(whole, parts);
}

TEST(AdapterFiles, TensorsOfTheEmbeddingOrTheHeadAreNotSupported) {
  for (const char* name : {"base_model.model.lm_head.lora_A.weight", "base_model.model.lm_head.weight",
                           "base_model.model.model.embed_tokens.lora_embedding_A"}) {
    Case c;
    Named named = tensors();
    named.emplace_back(name, values({1, 1}, {1}));
    std::string why = refusal(Exit::kConfig, [&] { c.open(named); });
    EXPECT_TRUE(says(why, std::string("is not supported: ") + name));
  }
}

TEST(AdapterFiles, EverythingThatIsMissingMisshapenOrLeftOverIsNamedAtOnce) {
  Case c;
  Named wrong = tensors();
  wrong[0].second = values({1, 2}, {1, 2});
  wrong[1].first = "base_model.model.model.layers.9.lora_B.weight";
  std::string why = refusal(Exit::kData, [&] { c.open(wrong); });
  for (const char* part : {"1 tensors are missing: base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight",
                           "lora_A.weight is [1, 2], wanted [2, 2]", "layers.9.lora_B.weight"})
    EXPECT_NE(why.find(part), std::string::npos) << why;
}

}  // namespace
}  // namespace sf::ckpt
