// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace sf {
namespace {

struct Row {
  Dtype type;
  size_t size;
  std::string_view name;
};
constexpr Row kRows[] = {{Dtype::kF32, 4, "F32"},  {Dtype::kF16, 2, "F16"}, {Dtype::kBF16, 2, "BF16"},
                         {Dtype::kF64, 8, "F64"},  {Dtype::kI64, 8, "I64"}, {Dtype::kI32, 4, "I32"},
                         {Dtype::kI16, 2, "I16"},  {Dtype::kI8, 1, "I8"},   {Dtype::kU8, 1, "U8"},
                         {Dtype::kBool, 1, "BOOL"}};

bool is_float(Dtype t) {
  return t == Dtype::kF32 || t == Dtype::kF16 || t == Dtype::kBF16 || t == Dtype::kF64;
}

double read_float(const std::byte* p, Dtype type) {
  uint16_t bits;
  float f;
  double d;
  switch (type) {
    case Dtype::kF32:
      return std::memcpy(&f, p, 4), f;
    case Dtype::kF64:
      return std::memcpy(&d, p, 8), d;
    case Dtype::kBF16:
      return std::memcpy(&bits, p, 2), bf16_to_float(bits);
    default:
      return std::memcpy(&bits, p, 2), half_to_float(bits);
  }
}

void write_float(std::byte* p, Dtype type, double value) {
  float f = static_cast<float>(value);
  uint16_t bits;
  switch (type) {
    case Dtype::kF32:
      std::memcpy(p, &f, 4);
      return;
    case Dtype::kF64:
      std::memcpy(p, &value, 8);
      return;
    case Dtype::kBF16:
      bits = float_to_bf16(f);
      break;
    default:
      bits = float_to_half(f);
      break;
  }
  std::memcpy(p, &bits, 2);
}

// Without a branch, so that a loop of it takes many at once.
uint16_t narrowed(uint32_t bits) {
  const uint32_t nan = (bits >> 16) | 0x40;  // keep NaN a NaN
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

void float_to_bf16(const std::byte* from, std::byte* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + 4 * i, 4);
    const uint16_t half = narrowed(bits);
    std::memcpy(to + 2 * i, &half, 2);
  }
}

void bf16_to_float(const std::byte* from, std::byte* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, from + 2 * i, 2);
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    std::memcpy(to + 4 * i, &bits, 4);
  }
}

}  // namespace

size_t size_of(Dtype type) {
  return kRows[static_cast<int>(type)].size;
}
std::string_view name_of(Dtype type) {
  return kRows[static_cast<int>(type)].name;
}

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return row.type;
  return std::nullopt;
}

std::optional<Dtype> dtype_from_config(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  if (name == "float32" || name == "fp32") return Dtype::kF32;
  if (name == "bfloat16" || name == "bf16") return Dtype::kBF16;
  if (name == "float16" || name == "fp16") return Dtype::kF16;
  return std::nullopt;
}

float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t float_to_bf16(float value) {
  return narrowed(std::bit_cast<uint32_t>(value));
}

float half_to_float(uint16_t bits) {
  uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  uint32_t exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ffu;
  if (exponent == 0) {
    float tiny = std::ldexp(static_cast<float>(fraction), -24);
    return sign ? -tiny : tiny;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

uint16_t float_to_half(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to infinity
  if (magnitude < 0x38800000u) {                        // subnormal half: nearest even of value * 2^24
    float scaled = std::nearbyint(std::ldexp(std::bit_cast<float>(magnitude), 24));
    return sign | static_cast<uint16_t>(scaled);
  }
  uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1);
  return sign | static_cast<uint16_t>((rounded - 0x38000000u) >> 13);
}

void convert(std::span<const std::byte> from, Dtype from_type, std::span<std::byte> to, Dtype to_type) {
  size_t count = from.size() / size_of(from_type);
  SF_ASSERT(to.size() == count * size_of(to_type));
  if (from_type == to_type) {
    if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
    return;
  }
  SF_CHECK(is_float(from_type) && is_float(to_type), Exit::kData,
           "cannot convert {} to {}: only floating types convert", name_of(from_type), name_of(to_type));
  if (from_type == Dtype::kF32 && to_type == Dtype::kBF16) return float_to_bf16(from.data(), to.data(), count);
  if (from_type == Dtype::kBF16 && to_type == Dtype::kF32) return bf16_to_float(from.data(), to.data(), count);
  size_t step_from = size_of(from_type), step_to = size_of(to_type);
  for (size_t i = 0; i < count; ++i)
    write_float(to.data() + i * step_to, to_type, read_float(from.data() + i * step_from, from_type));
}

}  // namespace sf
