// SPDX-License-Identifier: Apache-2.0
#include "arch/dflash.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace sf::arch {
namespace {

Json qwen3_8b() {
  return Json::parse(R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936,
    "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960, "rope_theta": 1000000})",
                     "test");
}

TEST(Dflash, CapturesWhatTheReferenceCapturesInOurNumbering) {
  EXPECT_EQ(dflash_capture_layers(36, 5), (std::vector<int64_t>{2, 10, 18, 26, 34}));  // SpecForge: 1 9 17 25 33
  EXPECT_EQ(dflash_capture_layers(28, 1), (std::vector<int64_t>{15}));
  EXPECT_EQ(dflash_capture_layers(28, 6), (std::vector<int64_t>{2, 7, 12, 16, 21, 26}));  // 10.6 -> 11, 15.4 -> 15
  EXPECT_EQ(dflash_capture_layers(29, 3), (std::vector<int64_t>{2, 15, 27}));             // 13.5 -> 14, half to even
}

TEST(Dflash, ReadsBackTheConfigItWrites) {
  Dflash draft = dflash_for_target(decoder_from_config(qwen3_8b()), 5);
  draft.mask_token = 151669;
  draft.windows = {2048, 2048, 0, 0, 0};
  EXPECT_EQ(dflash_from_config(dflash_to_config(draft)), draft);
  EXPECT_EQ(dflash_to_config(draft).at("dflash_config").at("target_layer_ids").dump(), "[1,9,17,25,33]");
}

TEST(Dflash, TrainingOfTheQwen3DraftHoldsTwoFrozenTablesBesideItsOwnParameters) {
  Dflash draft = dflash_for_target(decoder_from_config(qwen3_8b()), 5);
  ModelSpec own = describe(draft), training = describe_training(draft, false);
  EXPECT_EQ(own.find("fc.weight")->shape, (Shape{4096, 5 * 4096}));
  EXPECT_EQ(training.parameter_count() - own.parameter_count(), 2 * int64_t{151936} * 4096);
  EXPECT_FALSE(training.find(kTargetEmbedding)->trainable);
  EXPECT_FALSE(training.find(kTargetHead)->trainable);
  ASSERT_EQ(training.segments.size(), 11U);
  EXPECT_EQ(training.segments[2].parameters, (std::vector<std::string>{kTargetEmbedding}));
}

TEST(Dflash, ATiedTargetGivesOneTableWithTwoNames) {
  Dflash draft = dflash_for_target(decoder_from_config(qwen3_8b()), 2);
  ModelSpec spec = describe_training(draft, true);
  EXPECT_EQ(spec.find(kTargetHead), nullptr);
  EXPECT_EQ(spec.storage_of(kTargetHead), kTargetEmbedding);
}

TEST(Dflash, RefusesLayersTheTargetDoesNotHave) {
  Json config = dflash_to_config(dflash_for_target(decoder_from_config(qwen3_8b()), 2));
  config.set("num_target_layers", 20);
  try {
    dflash_from_config(config);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kConfig);
    EXPECT_NE(std::string(error.what()).find("target_layer_ids holds 33"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace sf::arch
