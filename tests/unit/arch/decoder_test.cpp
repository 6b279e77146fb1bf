// SPDX-License-Identifier: Apache-2.0
#include "arch/decoder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>

#include "arch/config_keys.h"
#include "base/error.h"
#include "base/file.h"

namespace sf::arch {
namespace {

Json parse(const char* text) {
  return Json::parse(text, "test");
}

std::string refusal(const std::function<void()>& body, Exit wanted = Exit::kConfig) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), wanted) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

std::string refused(const char* config, Exit wanted = Exit::kConfig) {
  return refusal([&] { decoder_from_config(parse(config)); }, wanted);
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// A small config of a family with every size stated; members of `more` are set, or removed by a value of "-".
Json small(const char* family, const char* more = "{}") {
  Json config = parse(R"({"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128})");
  config.set("model_type", family);
  Json members = parse(more);
  for (const auto& [key, value] : members.as_object()) {
    if (value == Json("-"))
      std::erase_if(config.as_object(), [&key = key](const Json::Member& member) { return member.first == key; });
    else
      config.set(key, value);
  }
  return config;
}

std::string refused(const Json& config, Exit wanted = Exit::kConfig) {
  return refusal([&] { decoder_from_config(config); }, wanted);
}

TEST(Decoder, MissingKeysTakeTheDefaultsOfTheFamily) {
  Decoder qwen3 = decoder_from_config(small("qwen3"));
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_EQ(qwen3.bos, -1);
  EXPECT_EQ(decoder_from_config(small("mistral")).windows, std::vector<int64_t>(2, 4096));
  Decoder llama = decoder_from_config(small("llama"));
  EXPECT_EQ(llama.eos, std::vector<int64_t>{2});
  EXPECT_EQ(llama.rope.theta, 10000);
  Decoder qwen2 = decoder_from_config(small("qwen2"));
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.o_bias);
}

TEST(Decoder, ASizeThatIsMissingNullOrNoNumberIsBadDataByName) {
  const char* sizes[] = {"vocab_size",        "hidden_size",         "intermediate_size",
                         "num_hidden_layers", "num_attention_heads", "max_position_embeddings"};
  for (const char* family : {"llama", "qwen2", "qwen3", "mistral"})
    for (const char* key : sizes)
      for (auto [value, found] :
           {std::pair("\"-\"", "missing"), {"null", "null"}, {"\"many\"", "string"}, {"1.5", "number"}}) {
        std::string text = refused(small(family, fmt::format("{{\"{}\": {}}}", key, value).c_str()), Exit::kData);
        EXPECT_TRUE(has(text, fmt::format("config.json: {} is ", key)) && has(text, found)) << text;
      }
}

TEST(Decoder, ASizeThatTheClassDerivesMayBeMissingAndOneThatItInventsMayNot) {
  Decoder llama = decoder_from_config(small("llama", R"({"num_key_value_heads": "-", "head_dim": "-"})"));
  EXPECT_EQ(llama.kv_heads, 4);
  EXPECT_EQ(llama.head_dim, 8);
  EXPECT_EQ(decoder_from_config(small("mistral", R"({"head_dim": "-"})")).head_dim, 8);
  EXPECT_TRUE(has(refused(small("mistral", R"({"num_key_value_heads": "-"})"), Exit::kData), "num_key_value_heads"));
  EXPECT_TRUE(has(refused(small("qwen2", R"({"num_key_value_heads": "-"})"), Exit::kData), "num_key_value_heads"));
  EXPECT_TRUE(has(refused(small("qwen3", R"({"head_dim": "-"})"), Exit::kData), "head_dim"));
}

TEST(Decoder, WhatTheFamilysClassFillsInIsListed) {
  Json silent =
      small("mistral", R"({"rms_norm_eps": null, "rope_theta": "-", "head_dim": "-", "sliding_window": "-"})");
  std::vector<std::string> list = assumed(silent, decoder_from_config(silent));
  for (const char* wanted : {"head_dim = 8", "rms_norm_eps = 1e-06", "rope_theta = 10000", "sliding_window = 4096"})
    EXPECT_EQ(std::count(list.begin(), list.end(), wanted), 1) << wanted;
  Json whole = decoder_to_config(decoder_from_config(silent));
  EXPECT_EQ(assumed(whole, decoder_from_config(whole)), std::vector<std::string>{});
}

TEST(Decoder, NullKvHeadsMeansAsManyAsHeads) {
  EXPECT_EQ(decoder_from_config(small("mistral", R"({"num_key_value_heads": null})")).kv_heads, 4);
}

TEST(Decoder, NullHeadDimMeansHiddenOverHeads) {
  Json config = small("qwen3", R"({"head_dim": null, "hidden_size": 1024, "num_attention_heads": 16})");
  EXPECT_EQ(decoder_from_config(config).head_dim, 64);
}

TEST(Decoder, UnknownArchitectureIsNamedWithThoseKnown) {
  std::string text = refused(R"({"architectures": ["FalconForCausalLM"], "model_type": "llama"})");
  EXPECT_TRUE(has(text, "FalconForCausalLM") && has(text, "Qwen3ForCausalLM")) << text;
  EXPECT_TRUE(has(refused(R"({"model_type": "gemma"})"), "gemma"));
  EXPECT_TRUE(has(refused("{}"), "known"));
}

TEST(Decoder, ArchitecturesIsOneNameThatAgreesWithTheModelType) {
  EXPECT_TRUE(has(refused(small("llama", R"({"architectures": []})")), "architectures names 0"));
  EXPECT_TRUE(
      has(refused(small("llama", R"({"architectures": ["LlamaForCausalLM", "Qwen3ForCausalLM"]})")), "names 2"));
  EXPECT_TRUE(has(refused(small("llama", R"({"architectures": "LlamaForCausalLM"})"), Exit::kData), "is string"));
  std::string text = refused(small("qwen3", R"({"architectures": ["LlamaForCausalLM"]})"));
  EXPECT_TRUE(has(text, "model_type \"llama\"") && has(text, "\"qwen3\"")) << text;
  EXPECT_EQ(decoder_from_config(small("qwen3", R"({"architectures": null})")).family, "qwen3");
}

TEST(Decoder, TokenIdsLieInTheVocabularyOrAreNull) {
  for (const char* id : {"64", "-1"})
    for (const char* key : {"bos_token_id", "eos_token_id"}) {
      std::string text = refused(small("llama", fmt::format("{{\"{}\": {}}}", key, id).c_str()));
      EXPECT_TRUE(has(text, fmt::format("{} = {}", key, id))) << text;
    }
  EXPECT_TRUE(has(refused(small("llama", R"({"eos_token_id": [3, 64]})")), "eos_token_id = 64"));
  EXPECT_TRUE(has(refused(small("llama", R"({"eos_token_id": "3"})"), Exit::kData), "eos_token_id is string"));
  EXPECT_TRUE(decoder_from_config(small("llama", R"({"eos_token_id": null})")).eos.empty());
}

TEST(Decoder, ARotaryScalingIsAnObjectThatStatesItsNumbers) {
  EXPECT_TRUE(has(refused(small("llama", R"({"rope_scaling": "linear"})"), Exit::kData), "rope_scaling is string"));
  std::string text = refused(small("llama", R"({"rope_scaling": {"rope_type": "llama3", "factor": 8}})"));
  EXPECT_TRUE(has(text, "low_freq_factor")) << text;
}

TEST(Decoder, RefusesSettingsOutOfRangeByName) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"llama", R"({"vocab_size": 0})", "vocab_size = 0"},
      {"llama", R"({"hidden_size": -4})", "hidden_size = -4"},
      {"llama", R"({"num_hidden_layers": 100000})", "num_hidden_layers = 100000"},
      {"llama", R"({"num_key_value_heads": 5})", "num_key_value_heads = 5"},
      {"llama", R"({"hidden_size": 4095})", "hidden_size = 4095"},
      {"qwen3", R"({"head_dim": 7})", "head_dim = 7"},
      {"llama", R"({"rms_norm_eps": 0})", "rms_norm_eps = 0"},
      {"llama", R"({"hidden_act": "gelu"})", "gelu"},
      {"llama", R"({"pretraining_tp": 2})", "pretraining_tp = 2"},
      {"llama", R"({"quantization_config": {"bits": 4}})", "quantization_config"},
      {"llama", R"({"dtype": "float8"})", "float8"},
      {"llama", R"({"rope_scaling": {"type": "longrope", "factor": 2}})", "longrope"},
      {"llama", R"({"rope_scaling": {"type": "linear"}})", "needs a factor"},
      {"llama", R"({"rope_scaling": {"type": "linear", "factor": -1}})", "factor = -1"},
      {"llama", R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor = 0.5"},
      {"qwen3", R"({"layer_types": ["full_attention"]})", "1 entries for 2 layers"},
      {"qwen3", R"({"num_hidden_layers": 1, "layer_types": ["linear_attention"]})", "linear_attention"},
      {"llama", R"({"num_hidden_layers": 1, "layer_types": ["sliding_attention"]})", "sliding"},
  };
  for (auto [family, more, part] : cases)
    EXPECT_TRUE(has(refused(small(family, more)), part)) << more << "\n" << refused(small(family, more));
}

TEST(Decoder, AConfigThatIsNoObjectIsBadData) {
  refused("[1]", Exit::kData);
}

TEST(Decoder, QwenSlidesOnlyWhenAskedAndFromMaxWindowLayers) {
  Json config = small("qwen2", R"({"num_hidden_layers": 4, "sliding_window": 16, "max_window_layers": 3})");
  EXPECT_EQ(decoder_from_config(config).windows, (std::vector<int64_t>{0, 0, 0, 0}));
  config.set("use_sliding_window", true);
  EXPECT_EQ(decoder_from_config(config).windows, (std::vector<int64_t>{0, 0, 0, 16}));
  config.set("layer_types", parse(R"(["sliding_attention", "full_attention", "full_attention", "full_attention"])"));
  EXPECT_EQ(decoder_from_config(config).windows, (std::vector<int64_t>{16, 0, 0, 0}));
}

TEST(Decoder, MistralWithNullWindowIsFull) {
  EXPECT_EQ(decoder_from_config(small("mistral", R"({"sliding_window": null})")).windows, std::vector<int64_t>(2, 0));
}

TEST(Decoder, RopeScalingWinsOverRopeParametersAndTypeIsASynonym) {
  Json config = small("llama", R"({"rope_theta": 7, "max_position_embeddings": 100,
    "rope_parameters": {"rope_type": "default", "rope_theta": 9},
    "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 50}})");
  Rope rope = decoder_from_config(config).rope;
  EXPECT_EQ(rope.type, "yarn");
  EXPECT_EQ(rope.theta, 7);
  EXPECT_EQ(rope.original_max_positions, 50);
  config.set("original_max_position_embeddings", 60);
  EXPECT_EQ(decoder_from_config(config).rope.original_max_positions, 60);
  config.set("rope_scaling", Json());
  EXPECT_EQ(decoder_from_config(config).rope.theta, 9);
}

TEST(Decoder, ConfigRoundTripsForEveryFamilyAndRope) {
  for (auto [family, more] : {
           std::pair("llama", R"({"tie_word_embeddings": true, "attention_bias": true, "mlp_bias": true,
               "eos_token_id": [3, 4], "dtype": "bfloat16", "rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3",
               "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 512}})"),
           std::pair("qwen2", R"({"use_sliding_window": true, "sliding_window": 64, "max_window_layers": 5})"),
           std::pair("qwen3", R"({"rope_scaling": {"type": "yarn", "factor": 4, "mscale": 1, "mscale_all_dim": 0.5,
               "original_max_position_embeddings": 8192, "truncate": false, "attention_factor": 1.25}})"),
           std::pair("mistral", R"({"rope_scaling": {"type": "dynamic", "factor": 2}, "bos_token_id": null})"),
           std::pair("mistral", R"({"num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"],
               "rope_scaling": {"type": "linear", "factor": 2}})"),
       }) {
    Decoder decoder = decoder_from_config(small(family, more));
    EXPECT_EQ(decoder_from_config(decoder_to_config(decoder)), decoder) << decoder_to_config(decoder).dump(2);
    for (const Json& config : {small(family, more), decoder_to_config(decoder)})
      EXPECT_EQ(unread_key(config), std::nullopt) << config.dump(2);
  }
}

TEST(Decoder, AKeyThatNothingReadsIsFoundAtAnyDepth) {
  Json config = small("qwen3", R"({"rope_scaling": {"type": "linear", "factr": 2}})");
  EXPECT_EQ(unread_key(config), "factr");
  EXPECT_EQ(unread_key(config.set("rope_scaling", Json()).set("num_key_value_head", 2)), "num_key_value_head");
}

// Whatever value a key takes, a config is refused with 78 or 65 or it describes a model whose size is a number.
TEST(Decoder, HostileValuesOfAnyKeyAreRefusedOrDescribed) {
  const Json good = decoder_to_config(decoder_from_config(small("qwen3", R"({"num_hidden_layers": 2,
    "use_sliding_window": true, "max_window_layers": 1, "rope_scaling": {"type": "yarn", "factor": 2}})")));
  const char* values[] = {
      "null", "true",  "0",  "-1",  "1",       "3",  "4194304",     "4611686018427387904", "1e308", "0.5",
      "\"\"", "\"x\"", "[]", "[1]", "[\"x\"]", "{}", "{\"a\": {}}", "{\"rope_type\": 3}",  "[null]"};
  int refused = 0, described = 0;
  auto attempt = [&](const Json& config) {
    try {
      EXPECT_GT(describe(decoder_from_config(config)).parameter_count(), 0) << config.dump();
      ++described;
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == Exit::kConfig || error.code() == Exit::kData) << error.what();
      ++refused;
    }
  };
  for (const auto& [key, old] : good.as_object())
    for (const char* value : values) attempt(Json(good).set(key, parse(value)));
  for (const auto& [key, old] : good.at("rope_scaling").as_object())
    for (const char* value : values)
      attempt(Json(good).set("rope_scaling", Json(good.at("rope_scaling")).set(key, parse(value))));
  EXPECT_GT(refused, 100);
  EXPECT_GT(described, 50);
}

Decoder smollm2() {
  return decoder_from_config(parse(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 49152, "hidden_size": 576,
    "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
    "tie_word_embeddings": true, "rope_theta": 100000, "max_position_embeddings": 8192})"));
}

TEST(Describe, CountsTheParametersOfSmolLM2) {
  ModelSpec spec = describe(smollm2());
  EXPECT_EQ(spec.parameter_count(), 134515008);
  EXPECT_EQ(spec.parameters.size(), 272u);
  EXPECT_EQ(spec.find("lm_head.weight"), nullptr);
  EXPECT_EQ(spec.storage_of("lm_head.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(spec.storage_of("model.norm.weight"), "model.norm.weight");
  EXPECT_EQ(spec.find("model.layers.29.self_attn.k_proj.weight")->shape, (Shape{192, 576}));
}

TEST(Describe, SegmentsChainFromIdsToLogits) {
  ModelSpec spec = describe(smollm2());
  ASSERT_EQ(spec.segments.size(), 32u);
  std::set<std::string> made = {"ids", "positions"};
  for (const Segment& segment : spec.segments) {
    for (const std::string& name : segment.reads) EXPECT_TRUE(made.contains(name)) << segment.name << " reads " << name;
    for (const std::string& name : segment.writes) EXPECT_TRUE(made.insert(name).second) << name << " written twice";
  }
  EXPECT_TRUE(made.contains("hidden.30") && made.contains("final_norm") && made.contains("logits"));
  EXPECT_EQ(spec.segments.back().parameters, (std::vector<std::string>{"model.norm.weight", "lm_head.weight"}));
}

TEST(Describe, FlopsAreTwoForEachMatrixWeight) {
  ModelSpec spec = describe(smollm2());
  double flops = 0, weights = 0;
  for (const Segment& segment : spec.segments) flops += segment.flops_per_token;
  for (const Parameter& p : spec.parameters)
    if (p.shape.size() == 2) weights += static_cast<double>(numel(p.shape));  // the tied embedding once: as the head
  EXPECT_EQ(flops, 2 * weights);
}

// The golden models carry the weights that Hugging Face's classes create: names and shapes must be exactly ours.
class GoldenModels : public testing::TestWithParam<const char*> {};

TEST_P(GoldenModels, NamesAndShapesAreThoseOfHuggingFace) {
  const char* root = std::getenv("SF_GOLDEN_ROOT");
  ASSERT_NE(root, nullptr) << "set SF_GOLDEN_ROOT to tests/golden";
  std::filesystem::path file = std::filesystem::path(root) / "hf_forward" / GetParam() / "case.json";
  Json golden = Json::parse(read_file(file), file.string());
  ModelSpec spec = describe(decoder_from_config(golden.at("config")));
  std::map<std::string, Shape> wanted, found;
  for (const auto& [name, tensor] : golden.at("tensors").as_object()) {
    if (!name.starts_with("weights/")) continue;
    Shape shape;
    for (const Json& extent : tensor.at("shape").as_array()) shape.push_back(extent.as_int());
    wanted[name.substr(name.find('/') + 1)] = shape;
  }
  for (const Parameter& p : spec.parameters) found[p.name] = p.shape;
  ASSERT_FALSE(wanted.empty());
  EXPECT_EQ(found, wanted);
}
INSTANTIATE_TEST_SUITE_P(Families, GoldenModels, testing::Values("llama3rope", "mistral", "qwen2", "qwen3"));

Rope rope(const char* type, double theta, double factor = 1, double original = 0) {
  Rope r;
  r.type = type;
  r.theta = theta;
  r.factor = factor;
  r.original_max_positions = original;
  return r;
}

void expect_frequencies(const RopeTable& table, const std::map<size_t, double>& wanted) {
  // Golden numbers are fp32 printed to 9 digits: half a unit of fp32 is 6e-8 relative.
  for (auto [i, value] : wanted) EXPECT_NEAR(table.inverse_frequency[i] / value, 1, 4e-7) << i;
}

TEST(RopeTable, DefaultFrequenciesOfQwen3) {
  RopeTable table = rope_table(rope("default", 1e6), 128, 40960, 10);
  ASSERT_EQ(table.inverse_frequency.size(), 64u);
  EXPECT_EQ(table.attention_scale, 1);
  expect_frequencies(table, {{0, 1}, {1, 0.805842188}, {2, 0.649381632}, {32, 0.001}, {63, 1.24093776e-06}});
}

TEST(RopeTable, Llama3FrequenciesOfThreeModels) {
  expect_frequencies(rope_table(rope("llama3", 5e5, 8, 8192), 128, 131072, 10), {{28, 0.00321144599},
                                                                                 {29, 0.00216657076},
                                                                                 {30, 0.00137189357},
                                                                                 {31, 0.000856751413},
                                                                                 {32, 0.000524846161},
                                                                                 {33, 0.00031269375},
                                                                                 {34, 0.000178507813},
                                                                                 {35, 9.55621235e-05},
                                                                                 {63, 3.06892599e-07}});
  expect_frequencies(rope_table(rope("llama3", 5e5, 32, 8192), 128, 131072, 10), {{29, 0.002118407},
                                                                                  {30, 0.00129054793},
                                                                                  {32, 0.000429556797},
                                                                                  {34, 9.7082878e-05},
                                                                                  {35, 2.38905309e-05},
                                                                                  {63, 7.67231497e-08}});
  expect_frequencies(rope_table(rope("llama3", 5e5, 32, 8192), 64, 131072, 10), {{14, 0.00321144599},
                                                                                 {15, 0.00129054793},
                                                                                 {16, 0.000429556797},
                                                                                 {17, 9.7082878e-05},
                                                                                 {18, 1.94616382e-05},
                                                                                 {31, 9.41830673e-08}});
}

TEST(RopeTable, YarnFrequenciesAndScale) {
  RopeTable table = rope_table(rope("yarn", 1e6, 4, 32768), 128, 131072, 10);
  EXPECT_NEAR(table.attention_scale, 1.138629436, 1e-9);
  expect_frequencies(table, {{23, 0.00697830585},
                             {24, 0.00537532149},
                             {30, 0.00106436098},
                             {39, 6.49039432e-05},
                             {40, 4.44569853e-05},
                             {63, 3.1023444e-07}});
}

TEST(RopeTable, LinearDividesEveryFrequency) {
  RopeTable plain = rope_table(rope("default", 1e4), 8, 64, 10), linear = rope_table(rope("linear", 1e4, 4), 8, 64, 10);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(linear.inverse_frequency[i], plain.inverse_frequency[i] / 4);
}

TEST(RopeTable, DynamicScalesOnlyBeyondMaxPositions) {
  RopeTable plain = rope_table(rope("default", 1e4), 8, 64, 64);
  EXPECT_EQ(rope_table(rope("dynamic", 1e4, 2), 8, 64, 64).inverse_frequency, plain.inverse_frequency);
  double theta = 1e4 * std::pow(2.0 * 2 - 1, 8.0 / 6);
  RopeTable longer = rope_table(rope("dynamic", 1e4, 2), 8, 64, 128);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_DOUBLE_EQ(longer.inverse_frequency[i], std::pow(theta, -2.0 * static_cast<double>(i) / 8));
}

Json moe_config(const char* family = "qwen3_moe") {
  Json config = Json::object();
  config.set("model_type", family).set("vocab_size", 64).set("hidden_size", 32).set("intermediate_size", 48);
  config.set("num_hidden_layers", 4).set("num_attention_heads", 4).set("num_key_value_heads", 2);
  config.set("max_position_embeddings", 64).set("num_experts", 6).set("num_experts_per_tok", 2);
  config.set("moe_intermediate_size", 16).set("decoder_sparse_step", 2);
  config.set("mlp_only_layers", Json(Json::Array{Json(3)}));
  return config.set("shared_expert_intermediate_size", 24);
}

TEST(Experts, ALayerRoutesByItsStepUnlessItIsListedAsDense) {
  Decoder d = decoder_from_config(moe_config());
  EXPECT_EQ(d.experts.layers, (std::vector<bool>{false, true, false, false}));
  EXPECT_EQ(d.head_dim, 8);
  ModelSpec spec = describe(d);
  EXPECT_EQ(spec.find("model.layers.1.mlp.experts.gate_up_proj")->shape, (Shape{6, 32, 32}));
  EXPECT_EQ(spec.find("model.layers.1.mlp.experts.down_proj")->shape, (Shape{6, 32, 16}));
  EXPECT_EQ(spec.find("model.layers.1.mlp.gate.weight")->shape, (Shape{6, 32}));
  EXPECT_EQ(spec.find("model.layers.1.mlp.gate_proj.weight"), nullptr);
  EXPECT_NE(spec.find("model.layers.3.mlp.gate_proj.weight"), nullptr);
  EXPECT_EQ(spec.find("model.layers.1.mlp.shared_expert_gate.weight"), nullptr);
}

TEST(Experts, TheSecondGenerationHasASharedExpertAndBiases) {
  Decoder d = decoder_from_config(moe_config("qwen2_moe"));
  ModelSpec spec = describe(d);
  EXPECT_EQ(spec.find("model.layers.1.mlp.shared_expert.up_proj.weight")->shape, (Shape{24, 32}));
  EXPECT_EQ(spec.find("model.layers.1.mlp.shared_expert_gate.weight")->shape, (Shape{1, 32}));
  EXPECT_NE(spec.find("model.layers.0.self_attn.q_proj.bias"), nullptr);
  EXPECT_EQ(spec.find("model.layers.0.self_attn.q_norm.weight"), nullptr);
}

TEST(Experts, TheConfigReadsBackToTheSameModel) {
  for (const char* family : {"qwen2_moe", "qwen3_moe"}) {
    Decoder d = decoder_from_config(moe_config(family));
    EXPECT_EQ(decoder_from_config(decoder_to_config(d)), d) << family;
    EXPECT_EQ(unread_key(decoder_to_config(d)), std::nullopt) << family;
  }
  EXPECT_THROW(decoder_from_config(moe_config().set("num_experts_per_tok", 7)), Error);
  EXPECT_THROW(decoder_from_config(moe_config().set("use_sliding_window", true)), Error);
}

}  // namespace
}  // namespace sf::arch
