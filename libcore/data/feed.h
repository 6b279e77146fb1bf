// SPDX-License-Identifier: Apache-2.0
// From positions to micro-batches: what a trainer rank asks of its source.
#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "data/collate.h"
#include "stream/source.h"

namespace sf::data {

class Feed {
 public:
  using Collate = std::function<Batch(std::span<const stream::Sample>)>;
  // Borrows the source. `deadline_s`: how long one position is waited for.
  Feed(stream::Source& source, Collate collate, double deadline_s)
      : source_(source), collate_(std::move(collate)), deadline_s_(deadline_s) {}

  void want(std::span<const uint64_t> positions) { source_.want(positions); }
  // The micro-batch of these positions, in this order. Errors of Source::get and of the collation.
  Batch get(std::span<const uint64_t> positions);
  void trained(uint64_t end) { source_.trained(end); }  // positions below are done
  void finish() { source_.finish(); }
  double deadline_s() const { return deadline_s_; }

 private:
  stream::Source& source_;
  Collate collate_;
  double deadline_s_;
};

}  // namespace sf::data
