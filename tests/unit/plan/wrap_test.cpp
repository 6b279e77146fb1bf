// SPDX-License-Identifier: Apache-2.0
// The cases are those of rl_lora 1.4.
#include "plan/wrap.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "arch/adapter.h"
#include "arch/decoder.h"
#include "base/error.h"
#include "base/rng.h"

namespace sf::plan {
namespace {

using Names = std::vector<std::string>;

Module module_of(std::string name, std::string type, Names parameters = {}) {
  if (parameters.empty()) parameters = {name + ".weight"};
  return {std::move(name), std::move(type), std::move(parameters)};
}

std::vector<Module> small() {
  return {module_of("", "Model", {"all"}), module_of("model.embed_tokens", "Embedding"),
          module_of("model.layers.0", "Block"), module_of("model.layers.1", "Block"), module_of("lm_head", "Linear")};
}

TEST(Wrap, AnUntiedModelsEmbeddingBlocksAndHeadAreGroups) {
  EXPECT_EQ(wrap_targets(small(), {.types = {"Block"}}),
            (Names{"model.embed_tokens", "model.layers.0", "model.layers.1", "lm_head"}));
}

TEST(Wrap, ATiedModelsEmbeddingAndHeadStayInTheRoot) {
  EXPECT_EQ(wrap_targets(small(), {.types = {"Block"}, .tied = true}), (Names{"model.layers.0", "model.layers.1"}));
}

TEST(Wrap, AWrapperOfAnEmbeddingIsWrappedAndNotWhatItHides) {
  const std::string embed = "base_model.model.model.embed_tokens", original = embed + ".original_module",
                    saved = embed + ".modules_to_save.default";
  std::vector<Module> modules{module_of(embed, "ModulesToSaveWrapper", {original + ".weight", saved + ".weight"}),
                              module_of(original, "Embedding"),
                              module_of(embed + ".modules_to_save", "ModuleDict", {saved + ".weight"}),
                              module_of(saved, "Embedding"),
                              module_of("base_model.model.model.layers.0", "Block"),
                              module_of("base_model.model.lm_head", "Linear")};
  EXPECT_EQ(wrap_targets(modules, {.types = {"Block"}}),
            (Names{embed, "base_model.model.model.layers.0", "base_model.model.lm_head"}));
}

TEST(Wrap, OfABlockWithAnEmbeddingInsideTheBlockAlone) {
  std::vector<Module> modules{module_of("block", "Block", {"block.aux_embedding.weight", "block.linear.weight"}),
                              module_of("block.aux_embedding", "Embedding"), module_of("block.linear", "Linear")};
  EXPECT_EQ(wrap_targets(modules, {.types = {"Block"}}), (Names{"block"}));
  EXPECT_EQ(wrap_targets(modules, {.types = {"Block"}, .ignored = {"block.aux_embedding.weight"}}), (Names{"block"}));
}

TEST(Wrap, AHostResidentTableIsInNoGroup) {
  std::vector<Module> modules{module_of("large", "Embedding"), module_of("block", "ToyBlock", {"block.linear.weight"}),
                              module_of("block.linear", "Linear")};
  EXPECT_EQ(wrap_targets(modules, {.types = {"ToyBlock"}, .ignored = {"large.weight"}}), (Names{"block"}));
}

TEST(Wrap, ALayersNumberIsComparedWhole) {
  std::vector<Module> modules;
  for (int i = 0; i < 12; ++i) modules.push_back(module_of(fmt::format("model.layers.{}", i), "Block"));
  EXPECT_EQ(wrap_targets(modules, {.types = {"Block"}}).size(), 12U);
}

TEST(Wrap, NoClassOrNoneThatTheModelHasIsRefused) {
  for (const Names& types : {Names{}, Names{""}, Names{"Blok"}}) {
    try {
      wrap_targets(small(), {.types = types});
      ADD_FAILURE() << fmt::format("{}", fmt::join(types, ","));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::kConfig) << error.what();
    }
  }
  EXPECT_EQ(wrap_targets(small(), {.types = {"Blok", "Block"}}).size(), 4U);
}

// Random trees: nothing twice, nothing inside another, the root never, and every module of the class is covered.
TEST(Wrap, OfAnyTreeNoTargetLiesInsideAnother) {
  Rng rng(5, "wrap");
  uint64_t draw = 0;
  for (int tree = 0; tree < 200; ++tree) {
    std::vector<Module> modules{module_of("", "Block", {"x"})};
    for (int i = 1; i < 20; ++i) {
      const std::string& parent = modules[rng.below(modules.size(), 0, draw++)].name;
      const char* types[] = {"Block", "Embedding", "Linear"};
      std::string name = (parent.empty() ? "" : parent + ".") + std::to_string(i);
      modules.push_back(module_of(name, types[rng.below(3, 1, draw++)]));
    }
    std::sort(modules.begin(), modules.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    Names targets = wrap_targets(modules, {.types = {"Block"}});
    EXPECT_EQ(std::set<std::string>(targets.begin(), targets.end()).size(), targets.size());
    auto inside = [](const std::string& name, const std::string& of) { return name.starts_with(of + "."); };
    for (const std::string& a : targets) {
      EXPECT_FALSE(a.empty());
      for (const std::string& b : targets) EXPECT_FALSE(inside(a, b)) << a << " in " << b;
    }
    for (const Module& module : modules) {
      if (module.name.empty() || module.type == "Linear") continue;
      EXPECT_TRUE(std::any_of(targets.begin(), targets.end(), [&](const std::string& target) {
        return module.name == target || inside(module.name, target);
      })) << module.name;
    }
  }
}

TEST(Wrap, OfADecoderTheRootHoldsWhatIsTiedAndTheLastNorm) {
  arch::Decoder decoder;
  decoder.family = "qwen3";
  decoder.vocab = 16, decoder.hidden = 8, decoder.intermediate = 8, decoder.layers = 3, decoder.heads = 1;
  decoder.kv_heads = 1, decoder.head_dim = 8, decoder.windows = {0, 0, 0};
  EXPECT_EQ(root_segments(arch::describe_training(decoder), {"Qwen3DecoderLayer"}, {}), (std::set<std::string>{}));
  decoder.tied = true;
  EXPECT_EQ(root_segments(arch::describe_training(decoder), {"Qwen3DecoderLayer"}, {}),
            (std::set<std::string>{"embed", "head"}));
}

TEST(Wrap, AnAdapterLiesInTheGroupOfItsBlock) {
  arch::Decoder d;
  d.family = "qwen3_moe", d.vocab = 64, d.hidden = 32, d.intermediate = 48, d.layers = 2, d.heads = d.kv_heads = 2;
  d.head_dim = 16, d.windows = {0, 0}, d.qk_norm = true;
  d.experts = {.count = 4, .chosen = 2, .width = 24, .layers = {true, true}};
  arch::Lora lora;
  lora.rank = 2, lora.targets.pattern = arch::kAllLinear, lora.parameters = {"experts.down_proj"};
  const std::vector<arch::Adapter> adapters = arch::adapters_of(lora, arch::describe(d));
  const arch::ModelSpec spec = arch::describe_training(d, adapters);
  EXPECT_EQ(root_segments(spec, {"Qwen3MoeDecoderLayer"}, {}).count("layers.0"), 0u);
  ASSERT_EQ(adapters.size(), 2u * 5);
  for (const arch::Adapter& adapter : adapters)
    for (const arch::Segment& segment : spec.segments) {
      auto holds = [&](const std::string& name) { return std::ranges::count(segment.parameters, name); };
      EXPECT_EQ(holds(adapter.a), holds(adapter.parameter)) << adapter.a << " in " << segment.name;
      EXPECT_EQ(holds(adapter.b), holds(adapter.parameter)) << adapter.b << " in " << segment.name;
    }
}

}  // namespace
}  // namespace sf::plan
