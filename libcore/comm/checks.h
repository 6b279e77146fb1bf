// SPDX-License-Identifier: Apache-2.0
// What every kind of group checks and computes alike.
#pragma once
#include <algorithm>
#include <numeric>
#include <span>
#include <string>

#include "comm/group.h"

namespace sf::comm {

// kSoftware if the sizes of a part do not fit each other.
void check_part(const GatherPart& part, int rank, int world);
void check_fold(std::span<const float> gradient, bool present, std::span<const size_t> offsets,
                std::span<const float> acc, int rank, int world);

// Lines joined by "; ": a message is one line.
std::string in_one_line(std::string_view text);

// A copy that another core will read: past the caches, since a line that is dirty in one core's cache reaches another
// core more slowly than memory does.
void copy_for_peers(std::byte* to, const std::byte* from, size_t bytes);

// acc[i] += from[i]: one fp32 addition an element, in whatever order of elements.
void fold_into(std::span<float> acc, const float* from);

// Bytes [lo, hi) of the stream that `rank`'s pieces of all parts make, back to back: body(part, offset in its piece,
// offset in the stream, bytes).
template <typename Body>
void for_range(std::span<const GatherPart> parts, int rank, size_t lo, size_t hi, Body&& body) {
  size_t start = 0;
  for (const GatherPart& part : parts) {
    size_t size = part.sizes[static_cast<size_t>(rank)];
    size_t from = std::max(lo, start), to = std::min(hi, start + size);
    if (from < to) body(part, from - start, from, to - from);
    start += size;
  }
}

inline size_t place_of(const GatherPart& part, int rank) {
  return std::accumulate(part.sizes.begin(), part.sizes.begin() + rank, size_t{0});
}

}  // namespace sf::comm
