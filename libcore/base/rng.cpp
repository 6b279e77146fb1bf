// SPDX-License-Identifier: Apache-2.0
#include "base/rng.h"

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/hash.h"

namespace sf {
namespace {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c;
}

}  // namespace

Rng::Rng(uint64_t seed, std::string_view purpose) {
  uint64_t mixed = seed * 0x9E3779B97F4A7C15ull ^ xxh3_64(purpose);
  key_ = {static_cast<uint32_t>(mixed), static_cast<uint32_t>(mixed >> 32)};
}

std::array<uint32_t, 4> Rng::block(uint64_t index, uint64_t element) const {
  return philox({static_cast<uint32_t>(element), static_cast<uint32_t>(element >> 32), static_cast<uint32_t>(index),
                 static_cast<uint32_t>(index >> 32)},
                key_);
}

uint64_t Rng::bits(uint64_t index, uint64_t element) const {
  auto b = block(index, element);
  return uint64_t{b[1]} << 32 | b[0];
}

double Rng::uniform(uint64_t index, uint64_t element) const {
  return static_cast<double>(bits(index, element) >> 11) * 0x1p-53;
}

float Rng::normal(uint64_t index, uint64_t element) const {
  auto b = block(index, element);
  double u = (static_cast<double>(b[0]) + 1.0) * 0x1p-32;  // (0, 1]
  double v = static_cast<double>(b[1]) * 0x1p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
}

uint64_t Rng::below(uint64_t bound, uint64_t index, uint64_t element) const {
  SF_ASSERT(bound > 0);
  return static_cast<uint64_t>(static_cast<unsigned __int128>(bits(index, element)) * bound >> 64);
}

Permutation::Permutation(uint64_t seed, std::string_view purpose, uint64_t size)
    : rng_(seed, purpose), size_(size), half_bits_(1) {
  while (half_bits_ < 32 && (uint64_t{1} << (2 * half_bits_)) < size) ++half_bits_;
}

uint64_t Permutation::operator()(uint64_t position) const {
  SF_ASSERT(position < size_);
  uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  do {
    uint64_t left = position >> half_bits_, right = position & mask;
    for (uint64_t round = 0; round < 6; ++round) {
      uint64_t next = left ^ (rng_.bits(round, right) & mask);
      left = right;
      right = next;
    }
    position = left << half_bits_ | right;
  } while (position >= size_);
  return position;
}

}  // namespace sf
