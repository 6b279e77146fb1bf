// SPDX-License-Identifier: Apache-2.0
#include "ckpt/gguf.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/rng.h"
#include "gguf_builder.h"
#include "scratch.h"

namespace sf::ckpt {
namespace {

using B = GgufBuilder;

GgufFile opened(const Scratch& scratch, std::string_view bytes) {
  write_atomic(scratch / "m.gguf", bytes);
  return GgufFile::open(scratch / "m.gguf");
}

std::string refused(std::string_view bytes) {
  Scratch scratch;
  std::string why = refusal(Exit::kData, [&] { opened(scratch, bytes); });
  EXPECT_NE(why.find("m.gguf"), std::string::npos) << why;
  return why;
}

std::vector<float> values(GgufType type, std::string_view block, size_t count) {
  std::vector<float> out(count);
  dequantise(type, std::as_bytes(std::span(block.data(), block.size())), out);
  return out;
}

std::string half(float value) {
  return B::raw(float_to_half(value));
}

TEST(Dequantise, Q4_0IsScaleTimesNibbleMinusEight) {
  std::string block = half(0.5f);
  for (int i = 0; i < 16; ++i) block += static_cast<char>(i | ((15 - i) << 4));
  std::vector<float> out = values(GgufType::kQ4_0, block, 32);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(out[i], 0.5f * static_cast<float>(i - 8));
    EXPECT_EQ(out[i + 16], 0.5f * static_cast<float>(7 - i));
  }
}

TEST(Dequantise, Q4_1IsScaleTimesNibblePlusMinimum) {
  std::string block = half(0.25f) + half(-3.0f);
  for (int i = 0; i < 16; ++i) block += static_cast<char>(i | ((15 - i) << 4));
  std::vector<float> out = values(GgufType::kQ4_1, block, 32);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(out[i], 0.25f * static_cast<float>(i) - 3.0f);
    EXPECT_EQ(out[i + 16], 0.25f * static_cast<float>(15 - i) - 3.0f);
  }
}

TEST(Dequantise, Q8_0IsScaleTimesSignedByte) {
  std::string block = half(0.125f);
  for (int i = 0; i < 32; ++i) block += static_cast<char>(i * 8 - 128);
  std::vector<float> out = values(GgufType::kQ8_0, block, 32);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], 0.125f * static_cast<float>(i * 8 - 128));
}

// The block is packed from the values, following the format's own picture: two halves of four quarters of 32 values.
TEST(Dequantise, Q6_KUnpacksEveryPosition) {
  int q[256], scale[16];
  for (int i = 0; i < 256; ++i) q[i] = (i * 37 + 11) % 64;
  for (int i = 0; i < 16; ++i) scale[i] = i * 9 - 70;
  std::string ql(128, 0), qh(64, 0), block;
  for (int i = 0; i < 256; ++i) {
    int part = i / 128, quarter = i % 128 / 32, l = i % 32;
    ql[part * 64 + (quarter % 2) * 32 + l] |= static_cast<char>((q[i] & 15) << (quarter / 2 * 4));
    qh[part * 32 + l] |= static_cast<char>((q[i] >> 4) << (2 * quarter));
  }
  block = ql + qh;
  for (int s : scale) block += static_cast<char>(s);
  block += half(0.0625f);
  std::vector<float> out = values(GgufType::kQ6_K, block, 256);
  for (int i = 0; i < 256; ++i)
    ASSERT_EQ(out[i], 0.0625f * static_cast<float>(scale[i / 16]) * static_cast<float>(q[i] - 32)) << i;
}

TEST(Dequantise, HalfAndBfloatWidenExactly) {
  EXPECT_EQ(values(GgufType::kF16, half(1.5f) + half(-2.25f), 2), (std::vector<float>{1.5f, -2.25f}));
  EXPECT_EQ(values(GgufType::kBF16, B::raw(float_to_bf16(3.0f)), 1), std::vector<float>{3.0f});
}

GgufBuilder small() {
  GgufBuilder builder;
  builder.string("general.architecture", "llama").u32("llama.block_count", 2).f32("eps", 1e-5f);
  builder.strings("tokens", {"a", "\xff", ""}).i32s("types", {1, -3});
  builder.key("flag", 7, B::raw(uint8_t{1})).key("wide", 10, B::raw(uint64_t{1} << 40)).key("d", 12, B::raw(0.1));
  builder.tensor("w", {2, 3}, 0, floats({0, 1, 2, 3, 4, 5}));
  builder.tensor("q", {32, 2}, 8, std::string(68, 1));
  return builder;
}

TEST(Gguf, ReadsKeysOfEveryKindAndTensorsInPyTorchOrder) {
  Scratch scratch;
  GgufFile file = opened(scratch, small().bytes());
  const Json& keys = file.metadata();
  EXPECT_EQ(keys.at("general.architecture").as_string(), "llama");
  EXPECT_EQ(keys.at("llama.block_count").as_int(), 2);
  EXPECT_EQ(keys.at("eps").as_double(), static_cast<double>(1e-5f));
  EXPECT_EQ(keys.at("tokens").as_array()[1].as_string(), "\xff");
  EXPECT_EQ(keys.at("types").as_array()[1].as_int(), -3);
  EXPECT_TRUE(keys.at("flag").as_bool());
  EXPECT_EQ(keys.at("wide").as_int(), int64_t{1} << 40);
  EXPECT_EQ(keys.at("d").as_double(), 0.1);
  ASSERT_NE(file.find("w"), nullptr);
  EXPECT_EQ(file.find("w")->shape, (Shape{3, 2}));
  std::vector<float> out(6);
  file.read(*file.find("w"), 0, out);
  EXPECT_EQ(out, (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(file.find("nothing"), nullptr);
}

TEST(Gguf, KnowsItsMagic) {
  Scratch scratch;
  write_atomic(scratch / "yes", small().bytes());
  write_atomic(scratch / "no", "GG");
  EXPECT_TRUE(GgufFile::is_gguf(scratch / "yes"));
  EXPECT_FALSE(GgufFile::is_gguf(scratch / "no"));
  EXPECT_FALSE(GgufFile::is_gguf(scratch.path()));
  EXPECT_FALSE(GgufFile::is_gguf(scratch / "missing"));
}

TEST(Gguf, RefusesOtherFilesAndVersions) {
  EXPECT_TRUE(says(refused("{}"), "magic"));
  GgufBuilder builder = small();
  builder.version = 4;
  EXPECT_TRUE(says(refused(builder.bytes()), "version 4"));
}

TEST(Gguf, RefusesUnsupportedTypesByNumberAndName) {
  EXPECT_TRUE(says(refused(GgufBuilder().tensor("w", {256}, 12, std::string(144, 0)).bytes()), "type 12 (Q4_K)"));
  EXPECT_TRUE(says(refused(GgufBuilder().tensor("w", {32}, 99, std::string(64, 0)).bytes()), "type 99 (unknown)"));
}

TEST(Gguf, RefusesCountsThatTheFileCannotHold) {
  GgufBuilder tensors = small(), keys = small();
  tensors.tensor_lie = uint64_t{1} << 60;
  EXPECT_TRUE(says(refused(tensors.bytes()), "tensors are announced"));
  keys.key_lie = uint64_t{1} << 60;
  EXPECT_TRUE(says(refused(keys.bytes()), "keys are announced"));
  std::string bomb = B::raw(uint32_t{8}) + B::raw(uint64_t{1} << 61);
  EXPECT_TRUE(says(refused(GgufBuilder().key("a", 9, bomb).bytes()), "array elements"));
  EXPECT_TRUE(says(refused(GgufBuilder().key("s", 8, B::raw(uint64_t{1} << 62)).bytes()), "bytes"));
}

TEST(Gguf, RefusesNestedArraysWithoutEnd) {
  std::string nested;
  for (int i = 0; i < 1000; ++i) nested += B::raw(uint32_t{9}) + B::raw(uint64_t{1});
  EXPECT_TRUE(says(refused(GgufBuilder().key("a", 9, nested).bytes()), "nested"));
}

TEST(Gguf, RefusesUnknownValueTypes) {
  EXPECT_TRUE(says(refused(GgufBuilder().key("a", 13, "12345678").bytes()), "type 13"));
}

TEST(Gguf, RefusesNamesThatOccurTwice) {
  EXPECT_TRUE(says(refused(GgufBuilder().u32("a", 1).u32("a", 2).bytes()), "\"a\" occurs twice"));
  EXPECT_TRUE(says(refused(small().tensor("w", {1}, 0, "0000").bytes()), "\"w\" occurs twice"));
}

TEST(Gguf, RefusesTensorsOutsideTheDataOrOverlapping) {
  GgufBuilder outside = small(), overlapping = small(), misaligned = small();
  outside.skew = 1 << 20;
  EXPECT_TRUE(says(refused(outside.tensor("x", {1}, 0, "0000").bytes()), "does not fit"));
  overlapping.skew = static_cast<uint64_t>(-32);
  EXPECT_TRUE(says(refused(overlapping.tensor("x", {1}, 0, "0000").bytes()), "overlap"));
  misaligned.skew = 4;
  EXPECT_TRUE(says(refused(misaligned.tensor("x", {1}, 0, "0000").bytes()), "offset"));
  EXPECT_TRUE(says(refused(small().bytes().substr(0, small().bytes().size() - 40)), "truncated"));
}

TEST(Gguf, RefusesImpossibleShapes) {
  EXPECT_TRUE(says(refused(GgufBuilder().tensor("w", {33}, 8, std::string(64, 0)).bytes()), "whole blocks"));
  EXPECT_TRUE(says(refused(GgufBuilder().tensor("w", {0}, 0, "").bytes()), "extent 0"));
  EXPECT_TRUE(says(refused(GgufBuilder().tensor("w", {1, 1, 1, 1, 1}, 0, "0000").bytes()), "5 dimensions"));
  uint64_t wide = uint64_t{1} << 40;
  refused(GgufBuilder().tensor("w", {wide, wide}, 0, "0000").bytes());
  EXPECT_TRUE(says(refused(small().u32("general.alignment", 3).bytes()), "general.alignment = 3"));
}

TEST(Gguf, EveryTruncationIsRefused) {
  std::string whole = small().bytes();
  UniqueFd memory(memfd_create("gguf", MFD_CLOEXEC));
  std::string path = fmt::format("/proc/self/fd/{}", memory.get());
  for (size_t size = 0; size < whole.size() - 28;
       ++size) {  // the last tensor is padded with 28 bytes that nobody reads
    ASSERT_EQ(ftruncate(memory.get(), 0), 0);
    ASSERT_EQ(pwrite(memory.get(), whole.data(), size, 0), static_cast<ssize_t>(size));
    refusal(Exit::kData, [&] { GgufFile::open(path); });
  }
}

TEST(Gguf, SurvivesRandomMutations) {
  const std::string good = small().bytes();
  UniqueFd memory(memfd_create("mutant", MFD_CLOEXEC));
  std::string path = fmt::format("/proc/self/fd/{}", memory.get());
  Rng rng(3, "mutations");
  int refused = 0, accepted = 0;
  for (uint64_t round = 0; round < 5000; ++round) {
    std::string bad = good;
    for (uint64_t k = 0, edits = 1 + rng.below(3, round, 0); k < edits; ++k) {
      size_t at = rng.below(bad.size(), round, 3 * k + 1);
      uint64_t value = rng.bits(round, 3 * k + 2);
      size_t width = std::min<size_t>(value & 1 ? 1 : 8, bad.size() - at);
      value >>= 1;
      std::memcpy(bad.data() + at, &value, width);
    }
    ASSERT_EQ(ftruncate(memory.get(), 0), 0);
    ASSERT_EQ(pwrite(memory.get(), bad.data(), bad.size(), 0), static_cast<ssize_t>(bad.size()));
    try {
      GgufFile file = GgufFile::open(path);
      for (const GgufTensor& tensor : file.tensors()) {
        std::vector<float> out(static_cast<size_t>(numel(tensor.shape)));
        file.read(tensor, 0, out);
      }
      ++accepted;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Exit::kData) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace sf::ckpt
