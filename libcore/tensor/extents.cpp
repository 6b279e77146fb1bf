// SPDX-License-Identifier: Apache-2.0
#include "tensor/extents.h"

#include <algorithm>
#include <iterator>

namespace sf::tensor {

std::optional<Extents::Extent> Extents::take(size_t size) {
  auto found = std::find_if(free_.begin(), free_.end(), [&](const auto& extent) { return extent.second >= size; });
  if (found == free_.end()) return take_new_ground(size);
  auto [at, whole] = *found;
  free_.erase(found);
  if (whole > size) free_.emplace(at + size, whole - size);
  return Extent{at, false};
}

// A free extent that ends where new ground begins is its first part.
std::optional<Extents::Extent> Extents::take_new_ground(size_t size) {
  size_t at = reached_;
  auto last = free_.empty() ? free_.end() : std::prev(free_.end());
  bool joined = last != free_.end() && last->first + last->second == reached_;
  if (joined) at = last->first;
  if (size > size_ - at) return std::nullopt;
  if (joined) free_.erase(last);
  reached_ = at + size;
  return Extent{at, !joined};
}

void Extents::give(size_t at, size_t size) {
  auto next = free_.lower_bound(at);
  if (next != free_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == at) {
      at = before->first;
      size += before->second;
      free_.erase(before);
    }
  }
  if (next != free_.end() && at + size == next->first) {
    size += next->second;
    free_.erase(next);
  }
  free_.emplace(at, size);
}

}  // namespace sf::tensor
