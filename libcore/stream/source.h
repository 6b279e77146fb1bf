// SPDX-License-Identifier: Apache-2.0
// Where a trainer rank gets its samples: by position, from a stream or from a directory.
#pragma once
#include <memory>
#include <span>

#include "base/deadline.h"
#include "stream/sample.h"

namespace sf::stream {

class Source {
 public:
  virtual ~Source() = default;
  virtual const Contract& contract() const = 0;
  // Says that these positions will be wanted soon; may be called again with the same ones. Never blocks.
  virtual void want(std::span<const uint64_t> positions) = 0;
  // The sample of one position (asked for now if it was not before). Throws kUnavailable naming the producer and how
  // long it has been silent, once the deadline passes or the producer is known to be dead.
  virtual Sample get(uint64_t position, Deadline deadline) = 0;
  // The positions below `end` that were taken are trained: they count as done.
  virtual void trained(uint64_t end) { (void)end; }
  // Ends in good order (BYE on a stream). Idempotent.
  virtual void finish() = 0;
};

}  // namespace sf::stream
