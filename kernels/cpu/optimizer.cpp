// SPDX-License-Identifier: Apache-2.0
#include "sf_kernels/optimizer.h"

#include <cmath>
#include <cstring>

#include "table.h"

namespace sf::kernels {

AdamWConstants adamw_constants(double lr, double beta1, double beta2, double eps, double weight_decay, int64_t step,
                               double scale) {
  const double correction1 = 1 - std::pow(beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(beta2, static_cast<double>(step));
  AdamWConstants c;
  c.scale = static_cast<float>(scale);
  c.keep = static_cast<float>(1 - lr * weight_decay);
  c.beta2 = static_cast<float>(beta2);
  c.rest1 = static_cast<float>(1 - beta1);
  c.rest2 = static_cast<float>(1 - beta2);
  c.step_size = static_cast<float>(lr / correction1);
  c.root = static_cast<float>(1 / std::sqrt(correction2));
  c.eps = static_cast<float>(eps);
  return c;
}

void adamw(float* p, const float* grad, float* m, float* v, size_t n, const AdamWConstants& c) {
  table().adamw(p, grad, m, v, n, c);
}
void fold_add(float* acc, const float* g, size_t n) {
  table().fold_add(acc, g, n);
}
void fold_add_bf16(float* acc, const uint16_t* g, size_t n) {
  table().fold_add_bf16(acc, g, n);
}
size_t first_non_finite(const float* values, size_t n) {
  return table().first_non_finite(values, n);
}
void to_bf16(const float* from, uint16_t* to, size_t n) {
  table().to_bf16(from, to, n);
}
void from_bf16(const uint16_t* from, float* to, size_t n) {
  table().from_bf16(from, to, n);
}
float largest(const float* values, size_t n) {
  return table().largest(values, n);
}
void to_e4m3(const float* from, uint8_t* to, size_t n, float factor) {
  table().to_e4m3(from, to, n, factor);
}

namespace {

// sum 2^(at - 300) in limbs.
void add_bits(uint64_t sum, uint32_t at, int64_t* limbs) {
  const unsigned __int128 wide = static_cast<unsigned __int128>(sum) << (at % 32);
  for (uint32_t part = 0; part < 3; ++part)
    limbs[at / 32 + part] += static_cast<int64_t>(static_cast<uint32_t>(wide >> (32 * part)));
}

// Gradients share few exponents, so a single bin an exponent would wait for itself at each value: four sets of bins
// take turns. A square has 48 bits: 2^15 of them fit a bin before it must be emptied into the limbs.
size_t by_exponent(const float* values, size_t n, int64_t* limbs) {
  constexpr size_t kSets = 4, kPiece = kSets << 15;
  uint64_t bins[256][kSets] = {};
  size_t bad = 0;
  for (size_t start = 0; start < n; start += kPiece) {
    const size_t end = start + kPiece < n ? start + kPiece : n;
    for (size_t i = start; i < end; ++i) {
      uint32_t bits;
      std::memcpy(&bits, values + i, 4);
      const uint32_t exponent = (bits >> 23) & 255;
      const uint64_t mantissa = (bits & 0x7fffff) | (exponent ? 0x800000u : 0);
      bins[exponent][i % kSets] += exponent == 255 ? 1 : mantissa * mantissa;
    }
    for (uint32_t exponent = 0; exponent < 256; ++exponent) {
      for (uint64_t& bin : bins[exponent]) {
        if (exponent == 255)
          bad += bin;
        else if (bin != 0)
          add_bits(bin, 2 * (exponent ? exponent : 1), limbs);
        bin = 0;
      }
    }
  }
  return bad;
}

}  // namespace

size_t add_squares(const float* values, size_t n, int64_t* limbs) {
  constexpr size_t kBlock = 4096;
  size_t bad = 0;
  for (size_t at = 0; at < n; at += kBlock) {
    const size_t count = n - at < kBlock ? n - at : kBlock;
    SquareBlock block;
    if (!table().square_block(values + at, count, block)) {
      bad += by_exponent(values + at, count, limbs);
      continue;
    }
    for (size_t i = 0; i < SquareBlock::kWindows; ++i)
      add_bits(block.sum[i], static_cast<uint32_t>(block.exponent[i] + 300), limbs);
  }
  return bad;
}

}  // namespace sf::kernels
