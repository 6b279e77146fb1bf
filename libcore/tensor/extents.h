// SPDX-License-Identifier: Apache-2.0
// Which parts of a range of memory are taken. What is given back joins its free neighbours, so that a sequence of
// tensors of many sizes needs little more than the most it holds at one time. Pure arithmetic on offsets, in bytes.
#pragma once
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace sf::tensor {

class Extents {
 public:
  explicit Extents(size_t size) : size_(size) {}

  struct Extent {
    size_t at = 0;
    bool fresh = false;  // no byte of it was ever taken before
  };
  // The smallest free extent that holds `size`, the lowest of equals; new ground only where none does. Nothing if the
  // range is too full.
  std::optional<Extent> take(size_t size);
  // Exactly what take() gave.
  void give(size_t at, size_t size);

  size_t reached() const { return reached_; }  // bytes [0, reached) were taken at some time

 private:
  using Free = std::map<size_t, size_t>::iterator;
  void add(size_t at, size_t size);
  void remove(Free extent);
  std::optional<Extent> take_new_ground(size_t size);

  size_t size_, reached_ = 0;
  std::map<size_t, size_t> free_;                // place -> size; no two touch
  std::set<std::pair<size_t, size_t>> by_size_;  // (size, place) of the same
};

}  // namespace sf::tensor
