// SPDX-License-Identifier: Apache-2.0
#include "tool/init_lora.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ckpt/draft.h"
#include "fixture.h"
#include "tool/shard_verify.h"

namespace sf::tool {
namespace {

struct Case {
  Scratch scratch;
  InitLoraOptions options;

  Case() {
    options.target = tiny_model(scratch);
    options.out = scratch / "adapter";
    options.lora = {.rank = 4, .alpha = 8, .targets = {{"q_proj", "down_proj"}, {}}};
  }
  ckpt::Checkpoint made() { return ckpt::Checkpoint::open(init_lora(options)); }
};
constexpr const char* kDownA = "base_model.model.model.layers.1.mlp.down_proj.lora_A.weight";

TEST(InitLora, TheDirectoryHoldsTheFilesAndNamesThatPeftReads) {
  Case c;
  ckpt::Checkpoint adapter = c.made();
  EXPECT_TRUE(std::filesystem::exists(c.options.out / "adapter_config.json"));
  EXPECT_TRUE(std::filesystem::exists(c.options.out / "adapter_model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(c.options.out / "config.json"));
  EXPECT_EQ(adapter.names().size(), static_cast<size_t>(4 * kLayers));
  EXPECT_EQ(adapter.info(kDownA).shape, (Shape{4, kInner}));
  EXPECT_EQ(arch::lora_from_config(adapter.config()).targets.names, (std::vector<std::string>{"down_proj", "q_proj"}));
}

TEST(InitLora, TheAdapterVerifiesAndNamesItsTarget) {
  Case c;
  ckpt::Checkpoint adapter = c.made();
  EXPECT_EQ(verify(adapter.dir()), std::vector<std::string>{});
  ckpt::check_target(adapter, ckpt::Checkpoint::open(c.options.target));
}

TEST(InitLora, AIsUniformWithinOneOverTheRootOfItsInputsAndBIsZero) {
  Case c;
  ckpt::Checkpoint adapter = c.made();
  double bound = 1 / std::sqrt(static_cast<double>(kInner)), squares = 0;
  std::vector<float> a = floats_of(adapter, kDownA);
  for (float x : a) squares += double{x} * x;
  EXPECT_LE(*std::max_element(a.begin(), a.end()), bound);
  EXPECT_GE(*std::min_element(a.begin(), a.end()), -bound);
  double n = static_cast<double>(a.size());
  EXPECT_NEAR(squares / n, bound * bound / 3, 5 * 0.3 * bound * bound / std::sqrt(n));  // five standard errors
  std::string b = kDownA;
  b[b.rfind("A.weight")] = 'B';
  for (float x : floats_of(adapter, b)) ASSERT_EQ(x, 0);
}

TEST(InitLora, ValuesDependOnTheSeedAndTheNameAlone) {
  Case one, other;
  other.options.lora.targets.names = {"down_proj"};
  std::vector<float> values = floats_of(one.made(), kDownA);
  EXPECT_EQ(floats_of(other.made(), kDownA), values);
  Case third;
  third.options.seed = 1;
  EXPECT_NE(floats_of(third.made(), kDownA), values);
}

TEST(InitLora, AnAdapterOfAnotherTargetIsRefused) {
  Case c;
  ckpt::Checkpoint adapter = c.made();
  Json config = tiny_config();
  Named tensors = random_tensors(arch::describe(arch::decoder_from_config(config)));
  tensors.back().second.as<float>()[0] += 1;
  ckpt::Checkpoint other = ckpt::Checkpoint::open(write_model(c.scratch / "other", config, tensors));
  std::string why = refusal(Exit::kProtocol, [&] { ckpt::check_target(adapter, other); });
  EXPECT_NE(why.find("an adapter of another target"), std::string::npos) << why;
}

TEST(InitLora, AllLinearIsWrittenAsTheEndingsItStandsFor) {
  Case c;
  c.options.lora.targets = selection_from_text("all-linear");
  EXPECT_EQ(arch::lora_from_config(c.made().config()).targets.names.size(), size_t{7});
}

TEST(InitLora, TargetsAreReadFromOneText) {
  EXPECT_EQ(selection_from_text("a,b.c,").names, (std::vector<std::string>{"a", "b.c"}));
  EXPECT_EQ(selection_from_text("re:.*q").pattern, ".*q");
  EXPECT_TRUE(selection_from_text("").empty());
}

TEST(InitLora, OtherRanksAndAlphasAreReadInTheirOrder) {
  EXPECT_EQ(ranks_from_text("layers.0.q_proj=2,q_proj=16"),
            (std::vector<std::pair<std::string, int64_t>>{{"layers.0.q_proj", 2}, {"q_proj", 16}}));
  EXPECT_EQ(alphas_from_text("a=1.5,").front().second, 1.5);
  for (const char* text : {"q_proj", "q_proj=", "=3", "q_proj=0", "q_proj=1.5", "q_proj=99999", "re:q=x"})
    EXPECT_NE(refusal(Exit::kConfig, [&] { ranks_from_text(text); }).find(text), std::string::npos);
}

TEST(InitLora, OtherRanksAndAlphasAreWrittenAndGiveTheirTensors) {
  Case c;
  c.options.lora.ranks = ranks_from_text("layers.1.mlp.down_proj=2,down_proj=3");
  c.options.lora.alphas = alphas_from_text("q_proj=1.5");
  ckpt::Checkpoint adapter = c.made();
  EXPECT_EQ(adapter.info(kDownA).shape, (Shape{2, kInner}));
  EXPECT_EQ(adapter.config().at("rank_pattern").dump(), R"({"layers.1.mlp.down_proj":2,"down_proj":3})");
  EXPECT_EQ(arch::lora_from_config(adapter.config()).alphas, c.options.lora.alphas);
  EXPECT_EQ(verify(adapter.dir()), std::vector<std::string>{});
}

TEST(InitLora, WhatIsMissingOfAnAdapterIsFoundByVerify) {
  Case c;
  ckpt::Checkpoint adapter = c.made();
  std::vector<std::pair<std::string, TensorView>> views;
  for (const std::string& name : adapter.names())
    if (name != kDownA) views.emplace_back(name, adapter.view(name));
  ckpt::Publisher publisher(c.scratch / "less");
  publisher.commit(views, adapter.config(), adapter.manifest());
  EXPECT_EQ(verify(c.scratch / "less"), std::vector<std::string>{std::string(kDownA) + ": missing"});
}

}  // namespace
}  // namespace sf::tool
