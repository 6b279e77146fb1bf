// SPDX-License-Identifier: Apache-2.0
#include "sf_kernels/optimizer.h"

#include <cmath>
#include <cstring>

namespace sf::kernels::reference {

void adamw(float* p, const float* grad, float* m, float* v, size_t n, const AdamWConstants& c) {
  for (size_t i = 0; i < n; ++i) {
    const float g = grad[i] * c.scale;
    m[i] = std::fma(c.rest1, g - m[i], m[i]);
    v[i] = std::fma(c.rest2 * g, g, v[i] * c.beta2);
    p[i] = std::fma(-c.step_size, m[i] / std::fma(std::sqrt(v[i]), c.root, c.eps), p[i] * c.keep);
  }
}

void to_bf16(const float* from, uint16_t* to, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, 4);
    if ((bits & 0x7fffffff) > 0x7f800000)
      to[i] = static_cast<uint16_t>((bits >> 16) | 0x40);
    else
      to[i] = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
}

// The nearest of all 127 magnitudes, the even code of two equally near.
void to_e4m3(const float* from, uint8_t* to, size_t n, float factor) {
  auto value = [](int code) {
    const int exponent = code >> 3, fraction = code & 7;
    return exponent ? std::ldexp(8.0 + fraction, exponent - 10) : std::ldexp(static_cast<double>(fraction), -9);
  };
  for (size_t i = 0; i < n; ++i) {
    const float x = from[i] * factor;
    const double size = std::fabs(static_cast<double>(x));
    int best = 0;
    for (int code = 1; code < 127; ++code) {
      const double before = std::fabs(value(best) - size), now = std::fabs(value(code) - size);
      if (now < before || (now == before && code % 2 == 0)) best = code;
    }
    to[i] = static_cast<uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
  }
}

size_t add_squares(const float* values, size_t n, int64_t* limbs) {
  size_t bad = 0;
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, values + i, 4);
    const uint32_t exponent = (bits >> 23) & 255;
    if (exponent == 255) {
      ++bad;
      continue;
    }
    // value^2 = mantissa^2 2^(2 e - 300), e at least 1
    const uint64_t mantissa = (bits & 0x7fffff) | (exponent ? 0x800000u : 0);
    const uint32_t shift = 2 * (exponent ? exponent : 1);
    const unsigned __int128 wide = static_cast<unsigned __int128>(mantissa * mantissa) << (shift % 32);
    for (uint32_t part = 0; part < 3; ++part) {
      limbs[shift / 32 + part] += static_cast<int64_t>(static_cast<uint32_t>(wide >> (32 * part)));
    }
  }
  return bad;
}

}  // namespace sf::kernels::reference
