// SPDX-License-Identifier: Apache-2.0
#include "tool/non_finite.h"

#include <cstring>

namespace sf::tool {
namespace {

// NaN and infinity are the values whose exponent bits are all set.
template <typename Bits>
int64_t count(std::span<const std::byte> bytes, Bits exponent) {
  int64_t found = 0;
  for (size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + at, sizeof bits);
    found += (bits & exponent) == exponent;
  }
  return found;
}

}  // namespace

int64_t non_finite(std::span<const std::byte> bytes, Dtype type) {
  switch (type) {
    case Dtype::kF64:
      return count<uint64_t>(bytes, 0x7ff0'0000'0000'0000u);
    case Dtype::kF32:
      return count<uint32_t>(bytes, 0x7f80'0000u);
    case Dtype::kBF16:
      return count<uint16_t>(bytes, 0x7f80u);
    case Dtype::kF16:
      return count<uint16_t>(bytes, 0x7c00u);
    default:
      return 0;
  }
}

}  // namespace sf::tool
