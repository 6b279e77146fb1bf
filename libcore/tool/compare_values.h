// SPDX-License-Identifier: Apache-2.0
// Two tensors of one shape, element by element. Private to this room.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "tool/tensor_set.h"

namespace sf::tool {

inline constexpr uint64_t kNoDistance = UINT64_MAX;  // from a number to NaN

struct Compared {
  std::string as;  // the type both were compared as
  int64_t elements = 0, differ = 0;
  uint64_t most_ulp = 0;         // of those that differ
  int64_t first = -1;            // element of the first difference; -1: none
  std::string first_a, first_b;  // its values
};

// `a` and `b` have equal shapes. Bytes without arithmetic here are compared as they are, if their types are equal;
// kData: they are not, or one side is a float and the other an integer.
Compared compare_values(const StoredTensor& a, const StoredTensor& b, std::optional<uint64_t> most_ulp);

}  // namespace sf::tool
