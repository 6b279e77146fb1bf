// SPDX-License-Identifier: Apache-2.0
#include "arch/drafts.h"

#include <gtest/gtest.h>

#include <set>

#include "arch/config_keys.h"
#include "arch/dflash2.h"
#include "arch/domino.h"
#include "arch/dspark.h"
#include "arch/eagle3.h"
#include "arch/peagle.h"
#include "base/error.h"

namespace sf::arch {
namespace {

Decoder qwen3_8b() {
  return decoder_from_config(Json::parse(
      R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936,
    "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960, "rope_theta": 1000000})",
      "test"));
}

template <typename Draft>
Draft of_blocks() {
  Draft draft;
  static_cast<Dflash&>(draft) = dflash_for_target(qwen3_8b(), 5);
  draft.mask_token = 151669;
  return draft;
}

std::string refusal(const Json& config) {
  try {
    draft_family(config).describe(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kConfig);
    return error.what();
  }
  return "";
}

TEST(Drafts, EachFamilyReadsBackTheConfigItWrites) {
  Dspark dspark = of_blocks<Dspark>();
  dspark.markov = Markov::kRnn, dspark.rank = 64, dspark.confidence_with_markov = true;
  EXPECT_EQ(dspark_from_config(dspark_to_config(dspark)), dspark);
  Domino domino = of_blocks<Domino>();
  domino.prefix = 2, domino.shift_label = false, domino.projection = 128;
  EXPECT_EQ(domino_from_config(domino_to_config(domino)), domino);
  Dflash2 dflash2 = of_blocks<Dflash2>();
  dflash2.softcap = 30, dflash2.top_k = 8, dflash2.embedding_scale = 2;
  EXPECT_EQ(dflash2_from_config(dflash2_to_config(dflash2)), dflash2);
  Peagle peagle = peagle_for_target(qwen3_8b(), 32000, 4);
  peagle.mask_token = 151669, peagle.norm_before_residual = true;
  EXPECT_EQ(peagle_from_config(peagle_to_config(peagle)), peagle);
  for (const Json& config :
       {dspark_to_config(dspark), domino_to_config(domino), dflash2_to_config(dflash2), peagle_to_config(peagle),
        eagle3_to_config(eagle3_for_target(qwen3_8b(), 32000)), dflash_to_config(of_blocks<Dflash>())})
    EXPECT_EQ(unread_key(config), std::nullopt) << config.dump(2);
}

TEST(Drafts, AConfigLeadsToItsFamilyAndWhatItCaptures) {
  Json dspark = dspark_to_config(of_blocks<Dspark>()), domino = domino_to_config(of_blocks<Domino>());
  Json peagle = peagle_to_config(peagle_for_target(qwen3_8b(), 32000, 4));
  EXPECT_EQ(draft_family(dspark).name, "dspark");
  EXPECT_EQ(draft_family(dspark).input(dspark).layers, (std::vector<int64_t>{2, 10, 18, 26, 34}));
  EXPECT_TRUE(draft_family(dspark).final_norm());
  EXPECT_FALSE(draft_family(domino).final_norm());
  EXPECT_EQ(draft_family(peagle).features, "eagle3");
  EXPECT_EQ(draft_family(peagle).input(peagle).layers, (std::vector<int64_t>{2, 18, 33}));
  std::set<std::string_view> names;
  for (const DraftFamily& family : draft_families()) names.insert(family.name);
  EXPECT_EQ(names, (std::set<std::string_view>{"eagle3", "dflash", "dflash2", "dspark", "domino", "peagle"}));
}

TEST(Drafts, ParametersHaveTheReferencesNamesAndShapes) {
  Dspark dspark = of_blocks<Dspark>();
  dspark.markov = Markov::kGated;
  ModelSpec spec = describe(dspark);
  EXPECT_EQ(spec.find("markov_head.markov_w1.weight")->shape, (Shape{151936, 256}));
  EXPECT_EQ(spec.find("markov_head.markov_w2.weight")->shape, (Shape{151936, 256}));
  EXPECT_EQ(spec.find("markov_head.gate_proj.weight")->shape, (Shape{256, 4096 + 256}));
  EXPECT_EQ(spec.find("confidence_head.proj.weight")->shape, (Shape{1, 4096}));
  spec = describe(of_blocks<Domino>());
  EXPECT_EQ(spec.find("prefix_gru.weight_ih_l0")->shape, (Shape{3072, 4096}));
  EXPECT_EQ(spec.find("prefix_gru.weight_hh_l0")->shape, (Shape{3072, 1024}));
  EXPECT_EQ(spec.find("embed_proj.0.weight")->shape, (Shape{256, 4096 + 1024}));
  EXPECT_EQ(spec.find("embed_proj.2.weight")->shape, (Shape{151936, 256}));
  spec = describe(of_blocks<Dflash2>());
  EXPECT_EQ(spec.find("layers.4.mlp_conv.base_kernel")->shape, (Shape{2, 2, 4096}));
  EXPECT_EQ(spec.find("layers.0.attention_conv.kernel_projection.weight")->shape, (Shape{2 * 2 * 256, 4096}));
  EXPECT_EQ(spec.find("candidate_selector.successor_codebook")->shape, (Shape{151936, 256}));
  spec = describe(peagle_for_target(qwen3_8b(), 32000, 4));
  EXPECT_EQ(spec.find("mask_hidden")->shape, (Shape{1, 1, 3 * 4096}));
  EXPECT_EQ(spec.find("layers.0.self_attn.q_proj.weight")->shape, (Shape{4096, 8192}));
  EXPECT_EQ(spec.find("layers.3.self_attn.q_proj.weight")->shape, (Shape{4096, 4096}));
  EXPECT_TRUE(spec.find("embed_tokens.weight")->trainable);
}

TEST(Drafts, WhatDoesNotFitIsRefusedByName) {
  auto own = [](Json config, const char* key, Json value) {
    Json inner = config.at("dflash_config");
    return config.set("dflash_config", inner.set(key, std::move(value)));
  };
  auto says = [](const Json& config, const char* text) {
    EXPECT_NE(refusal(config).find(text), std::string::npos) << refusal(config);
  };
  Json dspark = dspark_to_config(of_blocks<Dspark>());
  says(own(dspark, "attention_mode", "mha"), "attention_mode \"mha\" with 32 heads and 8 key heads, which is gqa");
  says(own(dspark, "markov_head_type", "lstm"), "\"lstm\" is unknown; known: vanilla, gated, rnn");
  Json domino = domino_to_config(of_blocks<Domino>());
  says(own(domino, "pure_draft_prefix_len", 16), "leaves no slot of a block of 16 to correct");
  Json dflash2 = dflash2_to_config(of_blocks<Dflash2>());
  says(own(dflash2, "block_size", 4), "block_size is 16 and 4 in dflash_config");
  says(own(dflash2, "conv_group_size", 24), "hidden_size = 4096 is no multiple of conv_group_size = 24");
  says(Json::object().set("architectures", Json(Json::Array{Json("MambaDraft")})),
       "\"MambaDraft\" is no draft's; known: LlamaForCausalLMEagle3, DFlashDraftModel");
}

}  // namespace
}  // namespace sf::arch
