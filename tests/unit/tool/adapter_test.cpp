// SPDX-License-Identifier: Apache-2.0
// Which adapter a run goes on with, and which one answers were made with.
#include <gtest/gtest.h>

#include "arch/decoder.h"
#include "base/file.h"
#include "base/json.h"
#include "fixture.h"
#include "tool/exam.h"
#include "tool/init_lora.h"
#include "tool/init_model.h"
#include "tool/open_adapter.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;

struct Case {
  Scratch scratch;
  fs::path target;

  Case() {
    InitModelOptions model;
    model.source = tiny_model(scratch);
    model.out = scratch / "target";
    target = init_model(model);
  }
  std::optional<ckpt::AdapterFiles> adapter(const std::string& name, arch::Lora lora, uint64_t seed = 42) {
    InitLoraOptions options{.target = target, .out = scratch / name, .seed = seed};
    options.lora = std::move(lora);
    return ckpt::AdapterFiles::open(init_lora(options),
                                    arch::describe(arch::decoder_from_config(ckpt::Checkpoint::open(target).config())));
  }
};
const arch::Lora kBefore{.rank = 4, .alpha = 8, .targets = {{"q_proj"}, {}}};

TEST(SameAdapter, ARunGoesOnWithTheSettingsThatItBeganWith) {
  Case c;
  auto before = c.adapter("before", kBefore), again = c.adapter("again", kBefore, 7);
  check_same_adapter(before->files(), again, "fp32");
  std::string type = refusal(Exit::kConfig, [&] { check_same_adapter(before->files(), again, "bf16"); });
  EXPECT_NE(type.find("training.adapter_dtype"), std::string::npos) << type;
  for (auto [name, changed, wanted] :
       {std::tuple{"rank", arch::Lora{.rank = 5, .alpha = 8, .targets = {{"q_proj"}, {}}}, "r was 4, is 5"},
        std::tuple{"alpha", arch::Lora{.rank = 4, .alpha = 9, .targets = {{"q_proj"}, {}}}, "lora_alpha was 8, is 9"},
        std::tuple{"scaling", arch::Lora{.rank = 4, .alpha = 8, .rank_stabilised = true, .targets = {{"q_proj"}, {}}},
                   "use_rslora was false, is true"},
        std::tuple{"targets", arch::Lora{.rank = 4, .alpha = 8, .targets = {{"k_proj"}, {}}},
                   "target_modules was [\"q_proj\"], is [\"k_proj\"]"}}) {
    auto other = c.adapter(name, changed);
    std::string why = refusal(Exit::kConfig, [&] { check_same_adapter(before->files(), other, "fp32"); });
    EXPECT_NE(why.find(wanted), std::string::npos) << why;
  }
}

TEST(SameAdapter, AnotherOfTheSameSettingsIsRefusedWithBothDigests) {
  Case c;
  auto first = c.adapter("first", kBefore), other = c.adapter("other", kBefore, 7);
  const fs::path manifest = first->files().dir() / "manifest.json";  // as a run's checkpoint says it
  write_atomic(manifest,
               Json::parse(read_file(manifest), "manifest").set(kBeganWith, first->files().identity()).dump());
  const ckpt::Checkpoint run = ckpt::Checkpoint::open(first->files().dir());
  check_same_adapter(run, first, "fp32");
  std::string why = refusal(Exit::kProtocol, [&] { check_same_adapter(run, other, "fp32"); });
  for (const auto& adapter : {first, other}) EXPECT_NE(why.find(adapter->files().identity()), std::string::npos) << why;
}

TEST(SameAdapter, ARunOfAnAdapterDoesNotGoOnWithoutOne) {
  Case c;
  auto adapter = c.adapter("adapter", kBefore);
  std::string why = refusal(Exit::kConfig, [&] { check_same_adapter(adapter->files(), std::nullopt, "fp32"); });
  EXPECT_NE(why.find("go on from it with --adapter"), std::string::npos) << why;
  why = refusal(Exit::kConfig, [&] { check_same_adapter(ckpt::Checkpoint::open(c.target), adapter, "fp32"); });
  EXPECT_NE(why.find("go on from it without --adapter"), std::string::npos) << why;
  check_same_adapter(ckpt::Checkpoint::open(c.target), std::nullopt, "fp32");
}

TEST(Facts, OfAnswersNameTheAdapter) {
  Case c;
  auto a = c.adapter("a", kBefore), b = c.adapter("b", kBefore, 7);
  Exam exam{.book = {}, .prompts = {}, .variables = {}, .part = {}, .facts = Json::object()};
  ckpt::Checkpoint target = ckpt::Checkpoint::open(c.target);
  Json plain = facts_of(exam, target), with_a = facts_of(exam, target, {}, &a->files());
  EXPECT_FALSE(plain.contains("adapter"));
  EXPECT_EQ(with_a.get_string("adapter", ""), a->files().identity());
  EXPECT_NE(with_a, facts_of(exam, target, {}, &b->files()));
}

}  // namespace
}  // namespace sf::tool
