// SPDX-License-Identifier: Apache-2.0
#include "tensor/extents.h"

#include <iterator>

namespace sf::tensor {

std::optional<Extents::Extent> Extents::take(size_t size) {
  auto found = by_size_.lower_bound({size, 0});
  if (found == by_size_.end()) return take_new_ground(size);
  auto [whole, at] = *found;
  remove(free_.find(at));
  if (whole > size) add(at + size, whole - size);
  return Extent{at, false};
}

// A free extent that ends where new ground begins is its first part.
std::optional<Extents::Extent> Extents::take_new_ground(size_t size) {
  size_t at = reached_;
  Free last = free_.empty() ? free_.end() : std::prev(free_.end());
  bool joined = last != free_.end() && last->first + last->second == reached_;
  if (joined) at = last->first;
  if (size > size_ - at) return std::nullopt;
  if (joined) remove(last);
  reached_ = at + size;
  return Extent{at, !joined};
}

void Extents::give(size_t at, size_t size) {
  Free next = free_.lower_bound(at);
  if (next != free_.begin()) {
    Free before = std::prev(next);
    if (before->first + before->second == at) {
      at = before->first;
      size += before->second;
      remove(before);
    }
  }
  if (next != free_.end() && at + size == next->first) {
    size += next->second;
    remove(next);
  }
  add(at, size);
}

void Extents::add(size_t at, size_t size) {
  free_.emplace(at, size);
  by_size_.emplace(size, at);
}

void Extents::remove(Free extent) {
  by_size_.erase({extent->second, extent->first});
  free_.erase(extent);
}

}  // namespace sf::tensor
