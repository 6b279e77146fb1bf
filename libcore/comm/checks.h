// SPDX-License-Identifier: Apache-2.0
// What every kind of group checks and computes alike.
#pragma once
#include <span>

#include "comm/group.h"

namespace sf::comm {

// kSoftware if the sizes of a part do not fit each other.
void check_part(const GatherPart& part, int rank, int world);
void check_fold(std::span<const float> gradient, bool present, std::span<const size_t> offsets,
                std::span<const float> acc, int rank, int world);

// A copy that another core will read: past the caches, since a line that is dirty in one core's cache reaches another
// core more slowly than memory does.
void copy_for_peers(std::byte* to, const std::byte* from, size_t bytes);

// acc[i] += from[i]: one fp32 addition an element, in whatever order of elements.
void fold_into(std::span<float> acc, const float* from);

}  // namespace sf::comm
