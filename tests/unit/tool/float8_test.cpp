// SPDX-License-Identifier: Apache-2.0
#include "tool/float8.h"

#include <gtest/gtest.h>

#include <cmath>

#include "fixture.h"
#include "tool/init_model.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;

TEST(Float8, ValuesAreTheFormats) {
  // sign, exponent biased by 7, three bits of fraction; subnormals in steps of 2^-9; no infinity.
  EXPECT_EQ(e4m3_to_float(0x00), 0.0f);
  EXPECT_TRUE(std::signbit(e4m3_to_float(0x80)));
  EXPECT_EQ(e4m3_to_float(0x01), 0.001953125f);
  EXPECT_EQ(e4m3_to_float(0x07), 7 * 0.001953125f);
  EXPECT_EQ(e4m3_to_float(0x08), 0.015625f);
  EXPECT_EQ(e4m3_to_float(0x38), 1.0f);
  EXPECT_EQ(e4m3_to_float(0xb9), -1.125f);
  EXPECT_EQ(e4m3_to_float(0x7e), 448.0f);
  EXPECT_TRUE(std::isnan(e4m3_to_float(0x7f)) && std::isnan(e4m3_to_float(0xff)));
}

// The tiny model with one weight in F8_E4M3; every stored element is `bits`, block (r, c) scaled by `scale(r, c)`.
constexpr const char* kWeight = "model.layers.1.mlp.gate_proj.weight";

fs::path float8_model(const Scratch& scratch, uint8_t bits, const std::string& leave_out = "") {
  Json config = tiny_config();
  Named tensors = random_tensors(arch::describe(arch::decoder_from_config(config)));
  config.set("quantization_config",
             Json::object().set("quant_method", "fp8").set("weight_block_size", Json(Json::Array{Json(16), Json(32)})));
  HostTensor raw(Dtype::kU8, {kInner, kHidden}), scale(Dtype::kF32, {kInner / 16, kHidden / 32});
  for (size_t i = 0; i < raw.bytes(); ++i) raw.data()[i] = static_cast<std::byte>(bits);
  for (size_t i = 0; i < scale.as<float>().size(); ++i) scale.as<float>()[i] = 1.0f + static_cast<float>(i);
  for (auto& [name, tensor] : tensors)
    if (name == kWeight) tensor = raw;
  if (leave_out.empty()) tensors.emplace_back(std::string(kWeight) + "_scale_inv", scale);
  write_model(scratch / "hf", config, tensors);
  fs::path file = scratch / "hf" / "model.safetensors";
  std::string text = read_file(file), from = "{\"dtype\":\"U8\"";
  uint64_t header;
  std::memcpy(&header, text.data(), 8);
  size_t at = text.find(from);
  text.replace(at, from.size(), "{\"dtype\":\"F8_E4M3\"");
  header += std::string_view("F8_E4M3").size() - 2;
  std::memcpy(text.data(), &header, 8);
  write_atomic(file, text);
  return scratch / "hf";
}

InitModelOptions options(const fs::path& source, const fs::path& out) {
  InitModelOptions o;
  o.source = source;
  o.out = out;
  return o;
}

TEST(Float8, IsStoredAsBfloatTimesItsBlocksScale) {
  Scratch scratch;
  ckpt::Checkpoint open = ckpt::Checkpoint::open(init_model(options(float8_model(scratch, 0x39), scratch / "out")));
  EXPECT_EQ(open.info(kWeight).dtype, Dtype::kBF16);
  std::vector<float> values = floats_of(open, kWeight);
  for (int64_t row = 0; row < kInner; ++row)
    ASSERT_EQ(values[static_cast<size_t>(row * kHidden + 5)], 1.125f * static_cast<float>(1 + row / 16)) << row;
  EXPECT_FALSE(open.contains(std::string(kWeight) + "_scale_inv"));
  EXPECT_FALSE(open.config().contains("quantization_config"));
}

TEST(Float8, TakesAnotherTypeWhenAsked) {
  Scratch scratch;
  InitModelOptions o = options(float8_model(scratch, 0x39), scratch / "out");
  o.dtype = Dtype::kF32;
  ckpt::Checkpoint open = ckpt::Checkpoint::open(init_model(o));
  EXPECT_EQ(open.info(kWeight).dtype, Dtype::kF32);
}

TEST(Float8, WithoutItsScalesIsRefusedByName) {
  Scratch scratch;
  fs::path source = float8_model(scratch, 0x39, "scale");
  EXPECT_TRUE(says(refusal(Exit::kData, [&] { init_model(options(source, scratch / "out")); }),
                   "1 tensors that config.json asks for are missing: " + std::string(kWeight) + "_scale_inv"));
}

}  // namespace
}  // namespace sf::tool
