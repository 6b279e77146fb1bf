// SPDX-License-Identifier: Apache-2.0
// Counter-based randomness: a value is a function of (seed, purpose, index, element) and of nothing else, so it does
// not depend on world size, batch shape or call order. Philox 4x32-10 (Salmon et al., SC 2011).
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace sf {

class Rng {
 public:
  // `purpose` names the use ("init:midlayer.fc.weight", "order", "sample"); different purposes are independent.
  Rng(uint64_t seed, std::string_view purpose);

  std::array<uint32_t, 4> block(uint64_t index, uint64_t element) const;  // 128 bits
  uint64_t bits(uint64_t index, uint64_t element = 0) const;
  double uniform(uint64_t index, uint64_t element = 0) const;  // [0, 1), 53 bits
  float normal(uint64_t index, uint64_t element = 0) const;    // mean 0, sd 1 (Box-Muller on the element's own block)
  uint64_t below(uint64_t bound, uint64_t index, uint64_t element = 0) const;  // [0, bound), unbiased to 2^-64

 private:
  std::array<uint32_t, 2> key_;
};

// A seeded bijection of [0, size): permute(position) costs O(1) and no table (Feistel network, cycle walking).
class Permutation {
 public:
  Permutation(uint64_t seed, std::string_view purpose, uint64_t size);
  uint64_t operator()(uint64_t position) const;  // Requires: position < size

 private:
  Rng rng_;
  uint64_t size_;
  unsigned half_bits_;
};

}  // namespace sf
