// SPDX-License-Identifier: Apache-2.0
// Which parts of a range of memory are taken. What is given back joins its free neighbours, so that a sequence of
// tensors of many sizes needs little more than the most it holds at one time. Pure arithmetic on offsets, in bytes.
#pragma once
#include <cstddef>
#include <map>
#include <optional>

namespace sf::tensor {

class Extents {
 public:
  explicit Extents(size_t size) : size_(size) {}

  struct Extent {
    size_t at = 0;
    bool fresh = false;  // no byte of it was ever taken before
  };
  // The lowest free extent that holds `size`; new ground only where none does. Nothing if the range is too full. (The
  // smallest that fits would leave a step at long rows 5 % more than the most it holds at one time, this 2 %.)
  std::optional<Extent> take(size_t size);
  // Exactly what take() gave.
  void give(size_t at, size_t size);

  size_t reached() const { return reached_; }  // bytes [0, reached) were taken at some time

 private:
  std::optional<Extent> take_new_ground(size_t size);

  size_t size_, reached_ = 0;
  std::map<size_t, size_t> free_;  // place -> size; no two touch
};

}  // namespace sf::tensor
