// SPDX-License-Identifier: Apache-2.0
// Finished samples by row, the least recently used leave first. A sample larger than the whole cache is not kept.
#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <memory>

#include "stream/sample.h"

namespace sf::stream {

class RowCache {
 public:
  explicit RowCache(size_t limit_bytes) : limit_(limit_bytes) {}

  std::shared_ptr<const Sample> find(uint64_t row) {
    auto found = by_row_.find(row);
    if (found == by_row_.end()) return nullptr;
    order_.splice(order_.begin(), order_, found->second);
    return *found->second;
  }

  void put(std::shared_ptr<const Sample> sample) {
    size_t size = cost(*sample);
    if (size > limit_ || by_row_.contains(sample->row)) return;
    while (bytes_ + size > limit_) {
      bytes_ -= cost(*order_.back());
      by_row_.erase(order_.back()->row);
      order_.pop_back();
    }
    bytes_ += size;
    order_.push_front(std::move(sample));
    by_row_[order_.front()->row] = order_.begin();
  }

  size_t bytes() const { return bytes_; }

 private:
  static size_t cost(const Sample& sample) { return sample.bytes() + 256; }  // void rows take room, too

  size_t limit_, bytes_ = 0;
  std::list<std::shared_ptr<const Sample>> order_;  // most recently used first
  std::map<uint64_t, std::list<std::shared_ptr<const Sample>>::iterator> by_row_;
};

}  // namespace sf::stream
