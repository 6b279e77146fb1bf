// SPDX-License-Identifier: Apache-2.0
#include "arch/hybrid.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "arch/config_keys.h"
#include "arch/decoder.h"
#include "base/error.h"

namespace sf::arch {
namespace {

// Every size stated; members of `more` are set.
Json small(const char* family, const char* more = "{}") {
  Json config = Json::parse(R"({"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 4, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
    "shared_expert_intermediate_size": 20, "eos_token_id": [2, 5]})",
                            "test");
  config.set("model_type", family);
  const Json members = Json::parse(more, "test");
  for (const auto& [key, value] : members.as_object()) config.set(key, value);
  return config;
}

constexpr const char* kSparse = R"({"ple_layer_ids": [2, 1], "ngram_vocab_size_base": 31, "heads_per_ngram": 2,
  "make_ngram_vocab_size_divisible_by": 16, "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 24,
  "indexer_budget": 8, "indexer_compress_ratio": 4, "output_gate_type": "sigmoid"})";

std::string refusal(const Json& config, Exit wanted = Exit::kConfig) {
  try {
    decoder_from_config(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), wanted) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(Hybrid, MissingKeysTakeTheDefaultsOfTheFamily) {
  Decoder next = decoder_from_config(small("qwen3_next"));
  EXPECT_EQ(next.delta.layers, (std::vector<bool>{true, true, true, false}));
  EXPECT_TRUE(next.delta.grouped && next.gated_attention && next.centred_norms && next.experts.normalise);
  EXPECT_EQ(next.rotary_dims(), 4);
  EXPECT_TRUE(next.rope.sections.empty());
  Decoder dense = decoder_from_config(small("qwen3_5_text"));
  EXPECT_EQ(dense.experts.count, 0);
  EXPECT_EQ(dense.rope.sections, (std::vector<int64_t>{11, 11, 10}));
  Decoder exp = decoder_from_config(small("qwen4_exp_text"));
  EXPECT_EQ(exp.rotary_dims(), 16);
  EXPECT_EQ(exp.wide, (WideResidual{4, 320}));
  EXPECT_EQ(exp.indexer.heads, 0);
  EXPECT_FALSE(exp.delta.sigmoid_gate);
}

TEST(Hybrid, TheConfigReadsBackToTheSameModel) {
  for (const char* family : {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen4_exp_text"})
    for (const char* more : {"{}", R"({"layer_types": ["full_attention", "linear_attention", "linear_attention",
      "full_attention"], "attention_bias": true, "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.5}})"}) {
      const Decoder d = decoder_from_config(small(family, more));
      EXPECT_EQ(decoder_from_config(decoder_to_config(d)), d) << family << more;
      EXPECT_EQ(unread_key(decoder_to_config(d)), std::nullopt) << family << more;
    }
  Decoder next = decoder_from_config(small("qwen3_next", R"({"mlp_only_layers": [1], "norm_topk_prob": false})"));
  EXPECT_EQ(decoder_from_config(decoder_to_config(next)), next);
  Decoder exp = decoder_from_config(small("qwen4_exp_text", kSparse));
  EXPECT_EQ(decoder_from_config(decoder_to_config(exp)), exp);
  EXPECT_EQ(unread_key(decoder_to_config(exp)), std::nullopt);
}

TEST(Hybrid, AMultimodalConfigIsItsLanguagePart) {
  Json whole = Json::object().set("model_type", "qwen3_5_moe").set("tie_word_embeddings", true);
  whole.set("architectures", Json(Json::Array{Json("Qwen3_5MoeForConditionalGeneration")})).set("dtype", "bfloat16");
  whole.set("vision_config", Json::object().set("depth", 27)).set("text_config", small("qwen3_5_moe_text"));
  Decoder d = decoder_from_config(whole), text = decoder_from_config(small("qwen3_5_moe_text"));
  EXPECT_TRUE(d.tied);
  EXPECT_EQ(d.stored, Dtype::kBF16);
  d.tied = text.tied, d.stored = text.stored;
  EXPECT_EQ(d, text);
}

TEST(Hybrid, AttentionHasThreeFurtherNamesInTheLastFamilyAlone) {
  for (const char* name :
       {"indexed_attention", "full_attention", "qwen_sparse_attention", "deepseek_sparse_attention"}) {
    Json types(Json::Array{Json("linear_attention"), Json(name), Json("linear_attention"), Json(name)});
    Decoder d = decoder_from_config(small("qwen4_exp_text").set("layer_types", types));
    EXPECT_EQ(d.delta.layers, (std::vector<bool>{true, false, true, false}));
  }
  for (auto [family, name] : {std::pair("qwen4_exp_text", "hybrid_indexed"), {"qwen3_next", "indexed_attention"}}) {
    Json types(Json::Array(4, Json(name)));
    EXPECT_TRUE(has(refusal(small(family).set("layer_types", types)), name));
  }
}

TEST(Hybrid, RefusesByNameWhatDoesNotFit) {
  EXPECT_TRUE(has(refusal(small("qwen3_5_text", R"({"linear_num_value_heads": 3})")), "linear_num_value_heads = 3"));
  EXPECT_TRUE(has(refusal(small("qwen3_5_text", R"({"linear_num_value_heads": null})"), Exit::kData),
                  "linear_num_value_heads"));
  EXPECT_TRUE(has(refusal(small("qwen3_next", R"({"partial_rotary_factor": 0.1})")), "partial_rotary_factor"));
  for (auto [key, value] : {std::pair("indexer_budget", "6"),
                            {"indexer_kv_heads", "2"},
                            {"indexer_head_dim", "8"},
                            {"hc_count", "1"},
                            {"ple_layer_ids", "[4]"},
                            {"ple_embed_dim", "31"},
                            {"output_gate_type", "\"tanh\""},
                            {"eos_token_id", "null"}}) {
    Json config = small("qwen4_exp_text", kSparse).set(key, Json::parse(value, "test"));
    EXPECT_TRUE(has(refusal(config), key == std::string("indexer_head_dim") ? "rotary" : key)) << key;
  }
  EXPECT_TRUE(has(refusal(small("qwen4_exp_text", R"({"indexer_n_heads": 4})"), Exit::kData), "indexer_kv_heads"));
}

TEST(Hybrid, HostileValuesOfAnyKeyAreRefusedOrDescribed) {
  const Json good = decoder_to_config(decoder_from_config(small("qwen4_exp_text", kSparse)));
  int refused = 0, described = 0;
  for (const auto& [key, old] : good.as_object())
    for (const char* value : {"null", "true", "0", "-1", "1", "3", "4194304", "4611686018427387904", "1e308", "\"x\"",
                              "[]", "[1]", "[\"x\"]", "{}"}) {
      try {
        EXPECT_GT(describe(decoder_from_config(Json(good).set(key, Json::parse(value, "test")))).parameter_count(), 0);
        ++described;
      } catch (const Error& error) {
        EXPECT_TRUE(error.code() == Exit::kConfig || error.code() == Exit::kData) << key << value << error.what();
        ++refused;
      }
    }
  EXPECT_GT(refused, 200);
  EXPECT_GT(described, 50);
}

TEST(Hybrid, ALayerWithoutExpertsNeedsAWidth) {
  Json config = small("qwen3_next", R"({"mlp_only_layers": [1]})");
  std::erase_if(config.as_object(), [](const Json::Member& member) { return member.first == "intermediate_size"; });
  EXPECT_TRUE(has(refusal(config, Exit::kData), "layer 1"));
}

TEST(Hybrid, TheReleasedModelIsDescribedAtFullSizeAtOnce) {
  Json config = Json::parse(R"({"model_type": "qwen4_exp_text", "vocab_size": 248320, "hidden_size": 2560,
    "num_hidden_layers": 48, "num_attention_heads": 24, "num_key_value_heads": 2, "head_dim": 256,
    "max_position_embeddings": 262144, "linear_num_key_heads": 16, "linear_num_value_heads": 48,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_experts": 512,
    "num_experts_per_tok": 10, "moe_intermediate_size": 640, "shared_expert_intermediate_size": 640, "hc_count": 4,
    "hc_lowrank": 320, "ple_layer_ids": [2], "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 128,
    "indexer_budget": 2048, "indexer_compress_ratio": 4, "output_gate_type": "sigmoid", "eos_token_id": 248044,
    "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25}})",
                            "test");
  const auto begin = std::chrono::steady_clock::now();
  const ModelSpec spec = describe(decoder_from_config(config));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));  // 0.02 s on a quiet machine
  const Parameter* table = spec.find("model.layers.1.ple.ple_embedding.ngram_embedding.weight");
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->shape, (Shape{320001536, 160}));
  EXPECT_EQ(spec.tables.size(), 1u);
  const double rest = static_cast<double>(spec.parameter_count() - numel(table->shape));
  EXPECT_NEAR(rest, 125e9, 1e9);  // "125 B main"
}

TEST(Hybrid, OnlyLinearLayersAndBanksOfExpertsTakeAdapters) {
  const ModelSpec spec = describe(decoder_from_config(small("qwen4_exp_text", kSparse)));
  Lora lora{.targets = {.pattern = kAllLinear}};
  lora.parameters = {"experts.gate_up_proj", "conv1d.weight"};
  for (const Adapter& adapter : adapters_of(lora, spec)) {
    EXPECT_FALSE(has(adapter.parameter, "ngram_embedding") || has(adapter.parameter, "conv1d")) << adapter.parameter;
  }
}

}  // namespace
}  // namespace sf::arch
