// SPDX-License-Identifier: Apache-2.0
#include "tool/merge_adapter.h"

#include <gtest/gtest.h>

#include "ckpt/adapter.h"
#include "fixture.h"
#include "tool/export_model.h"
#include "tool/import_model.h"
#include "tool/init_lora.h"
#include "tool/init_model.h"
#include "tool/shard_diff.h"
#include "tool/shard_verify.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;
constexpr const char* kAdapted = "model.layers.1.mlp.down_proj.weight";

// A target, and an adapter of it whose B is `b` everywhere: a new one adds nothing (rl_lora L-38).
struct Case {
  Scratch scratch;
  fs::path target, adapter;
  std::vector<std::string> warnings;

  explicit Case(Dtype dtype = Dtype::kF32, float b = 0.25f) {
    InitModelOptions model;
    model.source = tiny_model(scratch, true, dtype);
    model.out = scratch / "target";
    target = init_model(model);
    InitLoraOptions fresh{.target = target, .out = scratch / "fresh"};
    fresh.lora = {.rank = 4, .alpha = 8, .targets = {{"down_proj"}, {}}};
    ckpt::Checkpoint made = ckpt::Checkpoint::open(init_lora(fresh));
    Named tensors;
    for (const std::string& name : made.names()) {
      HostTensor tensor(Dtype::kF32, made.info(name).shape);
      std::vector<float> values = floats_of(made, name);
      if (name.find("lora_B") != std::string::npos) values.assign(values.size(), b);
      std::copy(values.begin(), values.end(), tensor.as<float>().begin());
      tensors.emplace_back(name, tensor);
    }
    std::vector<std::pair<std::string, TensorView>> views;
    for (const auto& [name, tensor] : tensors) views.emplace_back(name, tensor.view());
    ckpt::Publisher publisher(scratch / "adapter");
    adapter = publisher.commit(views, made.config(), made.manifest());
  }
  fs::path merged(bool keep = false) {
    MergeOptions options{.adapter = adapter, .out = scratch / "merged", .keep = keep};
    options.report.warning = [&](std::string_view text) { warnings.emplace_back(text); };
    return merge_adapter(options);
  }
};

TEST(Merge, EveryValueIsTheTargetsPlusTheScaledProductRoundedOnce) {
  Case c(Dtype::kBF16);
  ckpt::Checkpoint before = ckpt::Checkpoint::open(c.target), after = ckpt::Checkpoint::open(c.merged());
  std::vector<float> w = floats_of(before, kAdapted), merged = floats_of(after, kAdapted);
  std::vector<float> a =
      floats_of(ckpt::Checkpoint::open(c.adapter), "base_model.model.model.layers.1.mlp.down_proj.lora_A.weight");
  for (size_t i = 0; i < w.size(); ++i) {
    float sum = 0;
    for (size_t k = 0; k < 4; ++k) sum += 0.25f * a[k * static_cast<size_t>(kInner) + i % static_cast<size_t>(kInner)];
    float wide = w[i] + 2 * sum, rounded = 0;
    std::byte half[2];
    convert(std::as_bytes(std::span(&wide, 1)), Dtype::kF32, half, Dtype::kBF16);
    convert(half, Dtype::kBF16, std::as_writable_bytes(std::span(&rounded, 1)), Dtype::kF32);
    ASSERT_EQ(merged[i], rounded) << i;
  }
  EXPECT_EQ(floats_of(before, "model.norm.weight"), floats_of(after, "model.norm.weight"));
  EXPECT_EQ(verify(after.dir()), std::vector<std::string>{});
}

TEST(Merge, UndoingRestoresEveryByteAndTheIdentity) {
  Case c(Dtype::kBF16);
  fs::path back = unmerge(c.merged(true), c.scratch / "back", {});
  EXPECT_TRUE(diff({.a = c.target, .b = back}).equal);
  EXPECT_FALSE(diff({.a = c.target, .b = c.scratch / "merged"}).equal);
  EXPECT_EQ(ckpt::Checkpoint::open(back).identity(), ckpt::Checkpoint::open(c.target).identity());
  EXPECT_EQ(verify(back), std::vector<std::string>{});
}

TEST(Merge, WhatKeptNothingCannotBeUndone) {
  Case c;
  fs::path merged = c.merged();
  std::string why = refusal(Exit::kData, [&] { unmerge(merged, c.scratch / "back", {}); });
  EXPECT_NE(why.find("--keep"), std::string::npos) << why;
  refusal(Exit::kData, [&] { unmerge(c.target, c.scratch / "back", {}); });
}

TEST(Merge, AnAdapterIsNotMergedTwice) {
  Case c;
  MergeOptions again{.adapter = c.adapter, .out = c.scratch / "twice", .target = c.merged()};
  std::string why = refusal(Exit::kProtocol, [&] { merge_adapter(again); });
  EXPECT_NE(why.find("another target"), std::string::npos) << why;
}

TEST(Merge, PeftsAdapterIsNotMergedTwiceNorImportedForWhatHoldsIt) {
  Case c;
  fs::path plain = export_model({.checkpoint = c.adapter, .out = c.scratch / "peft", .to = "peft"});
  write_atomic(plain / "adapter_config.json", read_file(plain / "adapter_config.json") + "\n");
  auto merged = [&](const fs::path& adapter, const fs::path& target, const char* name) {
    return merge_adapter({.adapter = adapter, .out = c.scratch / name, .target = target});
  };
  fs::path once = merged(plain, c.target, "once");
  EXPECT_TRUE(says(refusal(Exit::kProtocol, [&] { merged(plain, once, "twice"); }), "is merged into"));
  refusal(Exit::kProtocol, [&] { import_model({.source = plain, .out = c.scratch / "in", .target = once}); });
  // Another in between hides nothing.
  fs::create_directory(c.scratch / "next");
  fs::copy_file(plain / "adapter_config.json", c.scratch / "next" / "adapter_config.json");
  ckpt::Checkpoint own = ckpt::Checkpoint::open(plain);
  std::vector<std::pair<std::string, TensorView>> views;
  Named zeros;
  for (const std::string& name : own.names()) zeros.emplace_back(name, HostTensor(Dtype::kF32, own.info(name).shape));
  for (const auto& [name, tensor] : zeros) views.emplace_back(name, tensor.view());
  ckpt::write_safetensors(c.scratch / "next" / "adapter_model.safetensors", views);
  fs::path both = merged(c.scratch / "next", once, "both");
  refusal(Exit::kProtocol, [&] { merged(plain, both, "thrice"); });
}

TEST(Merge, ATiedNameThatIsStoredTooIsRecordedOnce) {
  Case c;
  Json config = tiny_config();
  Named tensors = random_tensors(arch::describe(arch::decoder_from_config(config)));
  tensors.emplace_back("lm_head.weight", tensors.front().second);
  fs::path both = write_model(c.scratch / "both", config, tensors);
  fs::path plain = export_model({.checkpoint = c.adapter, .out = c.scratch / "peft", .to = "peft"});
  fs::path merged = merge_adapter({.adapter = plain, .out = c.scratch / "out", .target = both});
  EXPECT_EQ(verify(merged), std::vector<std::string>{});
  std::string why = refusal(
      Exit::kData, [&] { merge_adapter({.adapter = plain, .out = c.scratch / "kept", .target = both, .keep = true}); });
  EXPECT_TRUE(says(why, "lm_head.weight"));
}

TEST(Merge, AnAdapterThatItsTargetsTypeSwallowsIsWarnedOf) {
  Case small(Dtype::kBF16, 1e-6f);
  small.merged();
  ASSERT_EQ(small.warnings.size(), 1u);
  EXPECT_NE(small.warnings[0].find("values of adapted parameters changed"), std::string::npos);
  Case large;
  large.merged();
  EXPECT_EQ(large.warnings.size(), 0u);
}

TEST(Merge, OfAnAdapterThatAddsNothingNothingIsSwallowed) {
  Case fresh(Dtype::kBF16, 0.0f);
  fresh.merged();
  EXPECT_EQ(fresh.warnings, std::vector<std::string>{});
  EXPECT_TRUE(diff({.a = fresh.target, .b = fresh.scratch / "merged"}).equal);
}

TEST(Merge, ValuesThatAreNotFiniteAreWarnedOfByEveryVerbThatPublishesThem) {
  std::vector<std::string> warnings;
  const Reporter report{.warning = [&](std::string_view text) { warnings.emplace_back(text); }};
  auto warned = [&](const char* name) {
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_TRUE(says(warnings[0], "hold NaN or infinity"));
    EXPECT_TRUE(says(warnings[0], name));
    warnings.clear();
  };
  Case large(Dtype::kF32, 1e30f);
  fs::path plain = export_model({.checkpoint = large.adapter, .out = large.scratch / "peft", .to = "peft"});
  export_model({.checkpoint = large.adapter,
                .out = large.scratch / "half",
                .to = "peft",
                .dtype = Dtype::kF16,
                .report = report});
  warned("lora_B.weight (");
  import_model(
      {.source = large.scratch / "half", .out = large.scratch / "in", .target = large.target, .report = report});
  warned("lora_B.weight (");
  merge_adapter(
      {.adapter = large.scratch / "half", .out = large.scratch / "merged", .target = large.target, .report = report});
  warned(kAdapted);
  merge_adapter({.adapter = plain, .out = large.scratch / "finite", .target = large.target, .report = report});
  EXPECT_EQ(warnings, std::vector<std::string>{});
}

TEST(Merge, PeftsTwoFilesGoOutAndComeBackUnchanged) {
  Case c;
  fs::path out = export_model({.checkpoint = c.adapter, .out = c.scratch / "peft", .to = "peft"});
  for (const auto& entry : fs::directory_iterator(out))
    EXPECT_TRUE(entry.path().filename().string().starts_with("adapter_")) << entry.path();
  fs::path back = import_model({.source = out, .out = c.scratch / "back", .target = c.target});
  EXPECT_TRUE(diff({.a = c.adapter, .b = back}).equal);
  EXPECT_EQ(verify(back), std::vector<std::string>{});
  refusal(Exit::kUsage, [&] { export_model({.checkpoint = c.adapter, .out = c.scratch / "hf", .to = "hf"}); });
  refusal(Exit::kUsage, [&] { export_model({.checkpoint = c.target, .out = c.scratch / "hf", .to = "peft"}); });
}

}  // namespace
}  // namespace sf::tool
