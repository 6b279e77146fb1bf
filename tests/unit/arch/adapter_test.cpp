// SPDX-License-Identifier: Apache-2.0
#include "arch/adapter.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "arch/decoder.h"
#include "base/error.h"

namespace sf::arch {
namespace {

ModelSpec target() {
  Json config = Json::object();
  config.set("architectures", Json(Json::Array{Json("Qwen3ForCausalLM")})).set("model_type", "qwen3");
  config.set("vocab_size", 64).set("hidden_size", 32).set("intermediate_size", 48).set("num_hidden_layers", 3);
  config.set("num_attention_heads", 4).set("num_key_value_heads", 2).set("head_dim", 16);
  config.set("max_position_embeddings", 64).set("tie_word_embeddings", true);
  return describe(decoder_from_config(config));
}

// Two layers with fused experts and a router, as far as adapters look at them.
ModelSpec experts() {
  ModelSpec spec;
  for (int i = 0; i < 2; ++i) {
    std::string at = "model.layers." + std::to_string(i) + ".";
    spec.parameters.push_back({at + "self_attn.q_proj.weight", {64, 32}});
    spec.parameters.push_back({at + "mlp.gate.weight", {6, 32}});
    spec.parameters.push_back({at + "mlp.experts.gate_up_proj", {6, 40, 32}});
    spec.parameters.push_back({at + "mlp.experts.down_proj", {6, 32, 20}});
    Segment segment{.name = "layers." + std::to_string(i)};
    for (size_t p = spec.parameters.size() - 4; p < spec.parameters.size(); ++p)
      segment.parameters.push_back(spec.parameters[p].name);
    spec.segments.push_back(std::move(segment));
  }
  return spec;
}

std::vector<std::string> modules(const Lora& lora, const ModelSpec& spec) {
  std::vector<std::string> names;
  for (const Adapter& adapter : adapters_of(lora, spec)) names.push_back(adapter.module);
  return names;
}

std::string refusal(Exit code, const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

TEST(Adapter, ANameMatchesTheWholeModuleOrItsEnding) {
  Lora lora{.targets = {{"self_attn.q_proj", "model.layers.1.mlp.up_proj", "roj"}, {}}};
  EXPECT_EQ(modules(lora, target()),
            (std::vector<std::string>{"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj",
                                      "model.layers.1.mlp.up_proj", "model.layers.2.self_attn.q_proj"}));
}

TEST(Adapter, APatternMustMatchTheWholeName) {
  EXPECT_EQ(modules({.targets = {{}, "model.*1.*[kv]_proj"}}, target()),
            (std::vector<std::string>{"model.layers.1.self_attn.k_proj", "model.layers.1.self_attn.v_proj"}));
  EXPECT_THROW(adapters_of({.targets = {{}, "q_proj"}}, target()), Error);
}

TEST(Adapter, AllLinearMeansTheBlocksWithoutTheRouter) {
  EXPECT_EQ(modules({.targets = {{}, kAllLinear}}, target()).size(), size_t{3 * 7});
  EXPECT_EQ(linear_endings(experts()), std::vector<std::string>{"q_proj"});
}

TEST(Adapter, WhatIsExcludedIsLeftOutFirst) {
  Lora lora{.targets = {{}, kAllLinear}, .excluded = {{"mlp.up_proj", "down_proj"}, {}}};
  EXPECT_EQ(modules(lora, target()).size(), size_t{3 * 5});
}

TEST(Adapter, ALayerFilterCountsBlocks) {
  EXPECT_EQ(modules({.targets = {{"q_proj"}, {}}, .layers = {2}}, target()),
            std::vector<std::string>{"model.layers.2.self_attn.q_proj"});
}

TEST(Adapter, TheScaleIsAlphaOverRankOrItsRoot) {
  Lora lora{.rank = 16, .alpha = 8, .targets = {{"q_proj"}, {}}};
  EXPECT_EQ(adapters_of(lora, target())[0].scale, 0.5);
  lora.rank_stabilised = true;
  EXPECT_EQ(adapters_of(lora, target())[0].scale, 2.0);
}

TEST(Adapter, OverridesApplyToTheEndOfAName) {
  Lora lora{.rank = 4, .alpha = 8, .targets = {{"q_proj", "v_proj"}, {}}};
  lora.ranks = {{"layers.1.self_attn.q_proj", 2}, {"q_proj", 16}};
  lora.alphas = {{"v_proj", 1}};
  std::vector<Adapter> found = adapters_of(lora, target());
  EXPECT_EQ(found[0].rank, 16);
  EXPECT_EQ(found[2].rank, 2);
  EXPECT_EQ(found[2].scale, 4.0);
  EXPECT_EQ(found[1].scale, 0.25);
}

TEST(Adapter, TwoParametersOfOneModuleNestTheLastOneOutermost) {
  Lora lora{.rank = 4, .parameters = {"mlp.experts.down_proj", "mlp.experts.gate_up_proj"}};
  std::vector<Adapter> found = adapters_of(lora, experts());
  ASSERT_EQ(found.size(), size_t{4});
  EXPECT_EQ(found[0].parameter, "model.layers.0.mlp.experts.gate_up_proj");
  EXPECT_EQ(found[0].a, "base_model.model.model.layers.0.mlp.experts.base_layer.lora_A.weight");
  EXPECT_EQ(found[0].a_shape(), (Shape{24, 32}));
  EXPECT_EQ(found[0].b_shape(), (Shape{40, 24}));
  EXPECT_EQ(found[1].b, "base_model.model.model.layers.0.mlp.experts.lora_B.weight");
  EXPECT_EQ(found[1].a_shape(), (Shape{24, 20}));
  lora.parameters = {"gate_up_proj"};
  EXPECT_EQ(adapters_of(lora, experts())[0].a, "base_model.model.model.layers.0.mlp.experts.lora_A.weight");
}

TEST(Adapter, ATargetThatMatchesNothingIsNamedWithTheEndingsThereAre) {
  Lora lora{.targets = {{"q_proj", "q_porj"}, {}}};
  EXPECT_EQ(refusal(Exit::kConfig, [&] { check_targets(lora, target()); }),
            "q_porj matches nothing of this target: its linear layers end in down_proj, gate_proj, k_proj, o_proj, "
            "q_proj, up_proj, v_proj");
  lora.targets.names = {"lm_head"};
  EXPECT_THROW(adapters_of(lora, target()), Error);
}

TEST(Adapter, AnOverrideThatMatchesNoAdapterIsNamed) {
  Lora lora{.rank = 4, .targets = {{"q_proj"}, {}}};
  lora.ranks = {{"layers.1.self_attn.q_proj", 2}, {"k_proj", 3}};
  lora.alphas = {{"q_porj", 3}};
  EXPECT_EQ(refusal(Exit::kConfig, [&] { check_targets(lora, target()); }),
            "other ranks or alphas are given for what gets no adapter: k_proj, q_porj");
  lora = {.rank = 4, .parameters = {"down_proj"}};
  lora.ranks = {{"experts.down_proj", 2}};
  check_targets(lora, experts());
  EXPECT_EQ(adapters_of(lora, experts())[0].a_shape(), (Shape{12, 20}));
}

TEST(Adapter, APatternThatCouldTakeForEverIsRefusedOrAnswered) {
  EXPECT_THROW(adapters_of({.targets = {{}, "(((a?){99}){99}){99}"}}, target()), Error);
  EXPECT_THROW(adapters_of({.targets = {{}, "(unclosed"}}, target()), Error);
  EXPECT_THROW(adapters_of({.targets = {{}, "((m|o|d|e|l|.)*)*!"}}, target()), Error);  // at once: nothing matches
}

TEST(Adapter, AddingFreezesTheTargetAndPutsAAndBBesideTheirParameter) {
  ModelSpec spec = target();
  std::vector<Adapter> adapters = adapters_of({.rank = 4, .targets = {{"layers.1.mlp.down_proj"}, {}}}, spec);
  size_t before = spec.segments[2].parameters.size();
  add_adapters(spec, adapters);
  EXPECT_EQ(spec.segments[2].parameters.size(), before + 2);
  for (const Parameter& parameter : spec.parameters)
    EXPECT_EQ(parameter.trainable, parameter.name.find(".lora_") != std::string::npos) << parameter.name;
  EXPECT_EQ(spec.find(adapters[0].a)->init, "uniform:" + double_text(1 / std::sqrt(48.0)));
  EXPECT_EQ(spec.find(adapters[0].b)->shape, (Shape{32, 4}));
}

TEST(Adapter, TheConfigReadsBackToTheSameAdapter) {
  Lora lora{.rank = 3, .alpha = 1.5, .rank_stabilised = true, .targets = {{"k_proj", "q_proj"}, {}}};
  lora.parameters = {"mlp.experts.gate_up_proj"};
  lora.layers = {0, 2};
  lora.ranks = {{"q_proj", 5}};
  lora.alphas = {{"k_proj", 7}};
  EXPECT_EQ(lora_from_config(Json::parse(lora_to_config(lora).dump(2), "test")), lora);
  lora.targets = {{}, ".*proj"};
  EXPECT_EQ(lora_from_config(lora_to_config(lora)), lora);
}

TEST(Adapter, RankAndAlphaHaveNoDefault) {
  for (const char* key : {"r", "lora_alpha"}) {
    Json config = lora_to_config({.targets = {{"q_proj"}, {}}});
    config.set(key, Json());
    EXPECT_NE(refusal(Exit::kData, [&] { lora_from_config(config); }).find(key), std::string::npos);
  }
}

TEST(Adapter, WhatWouldBeComputedOtherwiseIsRefusedByName) {
  for (const char* key : {"use_dora", "lora_bias", "fan_in_fan_out"}) {
    Json config = lora_to_config({.targets = {{"q_proj"}, {}}}).set(key, true);
    EXPECT_NE(refusal(Exit::kConfig, [&] { lora_from_config(config); }).find(key), std::string::npos);
  }
  for (const char* start : {"pissa", "pissa_niter_16", "olora", "corda", "loftq", "lora_ga", "mica"}) {
    Json config = lora_to_config({.targets = {{"q_proj"}, {}}}).set("init_lora_weights", start);
    std::string why = refusal(Exit::kConfig, [&] { lora_from_config(config); });
    EXPECT_NE(why.find(fmt::format("init_lora_weights \"{}\"", start)), std::string::npos) << why;
  }
  Json config = lora_to_config({.targets = {{"q_proj"}, {}}}).set("something_new", true);
  config.set("init_lora_weights", "gaussian");
  EXPECT_EQ(lora_from_config(config).rank, 8);
}

}  // namespace
}  // namespace sf::arch
