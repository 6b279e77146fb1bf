// SPDX-License-Identifier: Apache-2.0
// Element types, with the names safetensors gives them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace sf {

enum class Dtype : uint8_t { kF32, kF16, kBF16, kF64, kI64, kI32, kI16, kI8, kU8, kBool };

size_t size_of(Dtype type);                              // bytes of one element
std::string_view name_of(Dtype type);                    // "F32", "BF16", "BOOL", ...
std::optional<Dtype> dtype_from_name(std::string_view);  // safetensors name; nullopt: unknown
// Names of config files: "float32", "bfloat16", "float16" (an optional "torch." in front); also "fp32" and "bf16".
std::optional<Dtype> dtype_from_config(std::string_view);

// Conversions between floating types; round to nearest even. Requires: to.size() holds from's element count.
float bf16_to_float(uint16_t bits);
uint16_t float_to_bf16(float value);
float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);
// Throws kData for a pair that is not float -> float or identical types.
void convert(std::span<const std::byte> from, Dtype from_type, std::span<std::byte> to, Dtype to_type);

}  // namespace sf
