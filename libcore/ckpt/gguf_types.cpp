// SPDX-License-Identifier: Apache-2.0
#include "ckpt/gguf_types.h"

#include <cstring>

#include "base/error.h"

namespace sf::ckpt {
namespace {

struct Row {
  uint32_t number;
  std::string_view name;
  uint64_t values, bytes;  // 0: not supported
};
constexpr Row kRows[] = {{0, "F32", 1, 4},       {1, "F16", 1, 2},     {2, "Q4_0", 32, 18},   {3, "Q4_1", 32, 20},
                         {6, "Q5_0", 0, 0},      {7, "Q5_1", 0, 0},    {8, "Q8_0", 32, 34},   {9, "Q8_1", 0, 0},
                         {10, "Q2_K", 0, 0},     {11, "Q3_K", 0, 0},   {12, "Q4_K", 0, 0},    {13, "Q5_K", 0, 0},
                         {14, "Q6_K", 256, 210}, {15, "Q8_K", 0, 0},   {16, "IQ2_XXS", 0, 0}, {17, "IQ2_XS", 0, 0},
                         {18, "IQ3_XXS", 0, 0},  {19, "IQ1_S", 0, 0},  {20, "IQ4_NL", 0, 0},  {21, "IQ3_S", 0, 0},
                         {22, "IQ2_S", 0, 0},    {23, "IQ4_XS", 0, 0}, {24, "I8", 0, 0},      {25, "I16", 0, 0},
                         {26, "I32", 0, 0},      {27, "I64", 0, 0},    {28, "F64", 0, 0},     {29, "IQ1_M", 0, 0},
                         {30, "BF16", 1, 2},     {34, "TQ1_0", 0, 0},  {35, "TQ2_0", 0, 0},   {39, "MXFP4", 0, 0}};

const Row* row_of(uint32_t number) {
  for (const Row& row : kRows)
    if (row.number == number) return &row;
  return nullptr;
}

float half_at(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return half_to_float(bits);
}

// 16 bytes hold 32 values: value i in the low nibble of byte i, value i + 16 in the high one.
void q4_0(const uint8_t* block, float* to) {
  float d = half_at(block);
  for (int i = 0; i < 16; ++i) {
    to[i] = d * static_cast<float>((block[2 + i] & 15) - 8);
    to[i + 16] = d * static_cast<float>((block[2 + i] >> 4) - 8);
  }
}

void q4_1(const uint8_t* block, float* to) {
  float d = half_at(block), m = half_at(block + 2);
  for (int i = 0; i < 16; ++i) {
    to[i] = d * static_cast<float>(block[4 + i] & 15) + m;
    to[i + 16] = d * static_cast<float>(block[4 + i] >> 4) + m;
  }
}

void q8_0(const uint8_t* block, float* to) {
  float d = half_at(block);
  for (int i = 0; i < 32; ++i) to[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

// 256 values of 6 bits: low nibbles in ql, two high bits in qh, one signed scale for each 16 values.
void q6_k(const uint8_t* block, float* to) {
  const uint8_t *ql = block, *qh = block + 128;
  const auto* scales = reinterpret_cast<const int8_t*>(block + 192);
  float d = half_at(block + 208);
  for (int half = 0; half < 2; ++half, ql += 64, qh += 32, scales += 8, to += 128) {
    for (int l = 0; l < 32; ++l) {
      const int q[4] = {(ql[l] & 15) | ((qh[l] >> 0 & 3) << 4), (ql[l + 32] & 15) | ((qh[l] >> 2 & 3) << 4),
                        (ql[l] >> 4) | ((qh[l] >> 4 & 3) << 4), (ql[l + 32] >> 4) | ((qh[l] >> 6 & 3) << 4)};
      for (int k = 0; k < 4; ++k)
        to[l + 32 * k] = d * static_cast<float>(scales[l / 16 + 2 * k]) * static_cast<float>(q[k] - 32);
    }
  }
}

}  // namespace

std::string gguf_type_name(uint32_t type) {
  const Row* row = row_of(type);
  return row ? std::string(row->name) : fmt::format("type {}", type);
}

bool is_quantised(GgufType type) {
  return block_of(type).values > 1;
}

GgufBlock block_of(GgufType type) {
  const Row* row = row_of(static_cast<uint32_t>(type));
  SF_ASSERT(row && row->values > 0);
  return {row->values, row->bytes};
}

GgufType supported_type(uint32_t number) {
  const Row* row = row_of(number);
  SF_CHECK(row && row->values > 0, Exit::kData,
           "type {} ({}) is not supported; known: F32, F16, BF16, Q4_0, Q4_1, Q8_0, Q6_K", number,
           row ? row->name : std::string_view("unknown"));
  return static_cast<GgufType>(number);
}

void dequantise(GgufType type, std::span<const std::byte> blocks, std::span<float> to) {
  GgufBlock block = block_of(type);
  SF_ASSERT(to.size() % block.values == 0 && blocks.size() == to.size() / block.values * block.bytes);
  switch (type) {
    case GgufType::kF32:
      return convert(blocks, Dtype::kF32, std::as_writable_bytes(to), Dtype::kF32);
    case GgufType::kF16:
      return convert(blocks, Dtype::kF16, std::as_writable_bytes(to), Dtype::kF32);
    case GgufType::kBF16:
      return convert(blocks, Dtype::kBF16, std::as_writable_bytes(to), Dtype::kF32);
    default:
      break;
  }
  auto one = type == GgufType::kQ4_0 ? q4_0 : type == GgufType::kQ4_1 ? q4_1 : type == GgufType::kQ8_0 ? q8_0 : q6_k;
  const auto* from = reinterpret_cast<const uint8_t*>(blocks.data());
  for (size_t i = 0; i < to.size() / block.values; ++i) one(from + i * block.bytes, to.data() + i * block.values);
}

}  // namespace sf::ckpt
