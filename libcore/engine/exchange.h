// SPDX-License-Identifier: Apache-2.0
// A segment that the ranks compute together, in place of one call of its function: a look-up whose rows lie on other
// ranks, a head that passes in chunks. Its tables stay in their intervals (plan::ScheduleOptions::exchanged).
#pragma once
#include "engine/store.h"
#include "model/segment.h"

namespace sf::engine {

class Exchange {
 public:
  virtual ~Exchange() = default;
  // Every rank calls it at the segment's turn and makes its own collective calls in it. `inputs`: the boundaries the
  // segment reads, or null without a micro-batch. Returns the boundaries it writes (none without a micro-batch). With
  // `graph`, what backward needs is kept.
  virtual model::Tensors forward(const Store& store, const model::Tensors* inputs, bool graph) = 0;
  // Every rank calls it in reverse order if something upstream trains. `gradients` of the boundaries it wrote (those
  // that got one), or null without a micro-batch; returns the gradients of the boundaries it read.
  virtual model::Tensors backward(const Store& store, const model::Tensors* gradients) = 0;
  // The window is over: what was gathered for it is given up.
  virtual void end_window() = 0;
};

}  // namespace sf::engine
