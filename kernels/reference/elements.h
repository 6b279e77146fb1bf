// SPDX-License-Identifier: Apache-2.0
// Elements of fp32 or bf16 by their index. Private to the reference kernels.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "sf_kernels/optimizer.h"
#include "sf_kernels/rows.h"

namespace sf::kernels::reference {

inline float get(Type type, const void* p, size_t i) {
  if (type == Type::kF32) return static_cast<const float*>(p)[i];
  const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(p)[i]) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline void put(Type type, void* p, size_t i, float value) {
  if (type == Type::kF32)
    static_cast<float*>(p)[i] = value;
  else
    to_bf16(&value, static_cast<uint16_t*>(p) + i, 1);
}

}  // namespace sf::kernels::reference
