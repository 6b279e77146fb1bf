// SPDX-License-Identifier: Apache-2.0
// Sequences of tokens, one behind the other: what every formula of this room works on. Numbers are fp64.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace sf::rl {

// A token that is 0 here is not there: nothing of it is read, be it infinite or no number (rl_lora G-22).
using Mask = std::span<const uint8_t>;
using Numbers = std::span<const double>;

// Sequence s owns tokens [begin(s), end(s)) of every array; a sequence may be empty.
class Ragged {
 public:
  Ragged() = default;
  explicit Ragged(std::span<const int64_t> lengths) {
    for (int64_t length : lengths) add(length);
  }
  void add(int64_t length) { ends_.push_back(tokens() + length); }
  int64_t count() const { return static_cast<int64_t>(ends_.size()) - 1; }
  int64_t tokens() const { return ends_.back(); }
  int64_t begin(int64_t sequence) const { return ends_[static_cast<size_t>(sequence)]; }
  int64_t end(int64_t sequence) const { return ends_[static_cast<size_t>(sequence) + 1]; }
  int64_t length(int64_t sequence) const { return end(sequence) - begin(sequence); }
  template <typename T>
  std::span<T> of(std::span<T> all, int64_t sequence) const {
    return all.subspan(static_cast<size_t>(begin(sequence)), static_cast<size_t>(length(sequence)));
  }

 private:
  std::vector<int64_t> ends_{0};
};

}  // namespace sf::rl
