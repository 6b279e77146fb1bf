// SPDX-License-Identifier: Apache-2.0
#include "arch/eagle3.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/file.h"

namespace sf::arch {
namespace {

Json parse(const char* text) {
  return Json::parse(text, "test");
}

std::string refused(const Json& config, Exit wanted = Exit::kConfig) {
  try {
    eagle3_from_config(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), wanted) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused: " << config.dump();
  return "";
}

Decoder target(int64_t layers = 36) {
  Json config = parse(R"({"model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "rope_theta": 500000, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 2048})");
  return decoder_from_config(config.set("num_hidden_layers", layers));
}

TEST(Eagle3, ADraftForATargetCopiesItsGeometryAndCapturesThreeLayers) {
  Eagle3 draft = eagle3_for_target(target(), 100);
  EXPECT_EQ(draft.hidden, 64);
  EXPECT_EQ(draft.target_hidden, 64);
  EXPECT_EQ(draft.kv_heads, 2);
  EXPECT_EQ(draft.rope.theta, 500000);
  EXPECT_EQ(draft.rms_eps, 1e-5);
  EXPECT_EQ(draft.capture_layers, (std::array<int64_t, 3>{2, 18, 33}));
}

TEST(Eagle3, TheFileHoldsSpecForgesLayerNumbers) {
  Json config = eagle3_to_config(eagle3_for_target(target(), 100));
  EXPECT_EQ(config.at("eagle_config").at("eagle_aux_hidden_state_layer_ids").dump(), "[1,17,32]");
  EXPECT_EQ(eagle3_from_config(config).capture_layers, (std::array<int64_t, 3>{2, 18, 33}));
}

TEST(Eagle3, AConfigWithoutLayersLeavesThemToTheTarget) {
  Json config = eagle3_to_config(eagle3_for_target(target(), 100));
  std::erase_if(config.as_object(), [](const Json::Member& member) { return member.first == "eagle_config"; });
  EXPECT_EQ(eagle3_from_config(config).capture_layers, (std::array<int64_t, 3>{0, 0, 0}));
}

TEST(Eagle3, ExportedConfigHoldsWhatServersRead) {
  Json config = eagle3_to_config(eagle3_for_target(target(), 100));
  for (const char* key :
       {"architectures",       "model_type",   "hidden_size",       "intermediate_size",   "num_attention_heads",
        "num_key_value_heads", "head_dim",     "num_hidden_layers", "vocab_size",          "draft_vocab_size",
        "rms_norm_eps",        "rope_theta",   "rope_scaling",      "rope_parameters",     "max_position_embeddings",
        "hidden_act",          "bos_token_id", "eos_token_id",      "tie_word_embeddings", "torch_dtype"})
    EXPECT_TRUE(config.contains(key)) << key;
  EXPECT_EQ(config.at("architectures").as_array()[0].as_string(), "LlamaForCausalLMEagle3");
  EXPECT_EQ(config.at("num_hidden_layers").as_int(), 1);
}

TEST(Eagle3, ConfigRoundTrips) {
  Eagle3 draft = eagle3_for_target(target(), 100);
  draft.fc_norm = true;
  draft.norm_output = false;
  draft.target_hidden = 48;
  draft.stored = Dtype::kBF16;
  EXPECT_EQ(eagle3_from_config(eagle3_to_config(draft)), draft);
}

TEST(Eagle3, RefusesWhatIsNotADraftOrOutOfRange) {
  auto has = [](const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; };
  Json good = eagle3_to_config(eagle3_for_target(target(), 100));
  auto with = [&](const char* key, Json value) { return Json(good).set(key, std::move(value)); };
  EXPECT_TRUE(has(refused(with("architectures", Json(Json::Array{Json("LlamaForCausalLM")}))), "LlamaForCausalLM"));
  EXPECT_TRUE(has(refused(with("draft_vocab_size", 1001)), "draft_vocab_size = 1001"));
  EXPECT_TRUE(has(refused(with("draft_vocab_size", 0)), "draft_vocab_size = 0"));
  EXPECT_TRUE(has(refused(with("num_hidden_layers", 2)), "num_hidden_layers = 2"));
  EXPECT_TRUE(has(refused(with("attention_bias", true)), "attention_bias"));
  EXPECT_TRUE(has(refused(with("tie_word_embeddings", true)), "tie_word_embeddings"));
  EXPECT_TRUE(
      has(refused(with("eagle_config", parse(R"({"eagle_aux_hidden_state_layer_ids": [1, 2]})"))), "2 entries"));
  EXPECT_TRUE(has(refused(with("eagle_config", parse(R"({"eagle_aux_hidden_state_layer_ids": [1, 2, -1]})"))), "-1"));
  EXPECT_TRUE(has(refused(parse(R"({"vocab_size": 10})")), "draft_vocab_size is missing"));
  for (const char* key : {"vocab_size", "draft_vocab_size", "hidden_size", "intermediate_size", "num_attention_heads",
                          "max_position_embeddings"})
    EXPECT_TRUE(has(refused(with(key, Json()), Exit::kData), key));
  refused(parse("3"), Exit::kData);
}

TEST(Eagle3, TheEmbeddingIsNoCaptureLayerOfTheFile) {
  Eagle3 draft = eagle3_for_target(target(), 100);
  draft.capture_layers = {0, 2, 3};
  EXPECT_THROW(eagle3_to_config(draft), Error);
}

TEST(Eagle3, ATargetOfThreeLayersIsTooShallow) {
  EXPECT_THROW(eagle3_for_target(target(3), 100), Error);
}

TEST(Eagle3, OnlyTheEmbeddingIsFrozen) {
  for (const Parameter& p : describe(eagle3_for_target(target(), 100)).parameters)
    EXPECT_EQ(p.trainable, p.name != "embed_tokens.weight") << p.name;
}

// The golden steps carry the weights that SpecForge's class creates.
class GoldenDrafts : public testing::TestWithParam<const char*> {};

TEST_P(GoldenDrafts, NamesAndShapesAreThoseOfSpecForge) {
  const char* root = std::getenv("SF_GOLDEN_ROOT");
  ASSERT_NE(root, nullptr) << "set SF_GOLDEN_ROOT to tests/golden";
  std::filesystem::path file = std::filesystem::path(root) / "eagle3" / GetParam() / "case.json";
  Json golden = Json::parse(read_file(file), file.string());
  ModelSpec spec = describe(eagle3_from_config(golden.at("draft_config")));
  std::map<std::string, Shape> wanted, found;
  for (const auto& [name, tensor] : golden.at("tensors").as_object()) {
    if (!name.starts_with("weights/")) continue;
    for (const Json& extent : tensor.at("shape").as_array()) wanted[name.substr(8)].push_back(extent.as_int());
  }
  for (const Parameter& p : spec.parameters) found[p.name] = p.shape;
  for (const Buffer& b : spec.buffers)
    if (b.stored) found[b.name] = b.shape;
  ASSERT_FALSE(wanted.empty());
  EXPECT_EQ(found, wanted);
}
INSTANTIATE_TEST_SUITE_P(Cases, GoldenDrafts,
                         testing::Values("t3", "t3_fc_norm_wide_target", "t3_no_norm_output_online", "t2_yarn_rope"));

}  // namespace
}  // namespace sf::arch
