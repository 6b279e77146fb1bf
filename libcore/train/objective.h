// SPDX-License-Identifier: Apache-2.0
// What a loop trains: how a window is normalised and what is reported of it. The mathematics is a model::Segment's.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/segment.h"

namespace sf::train {

// What all ranks know of a window before its first round.
struct Window {
  std::span<const int64_t> counts;    // the objective's, over all ranks
  int64_t step = 0, total_steps = 1;  // windows before it; those of the whole schedule
};

class Objective {
 public:
  virtual ~Objective() = default;
  // Integers of one micro-batch, a function of the data alone; summed over the window and all ranks before its first
  // round.
  virtual size_t count_size() const = 0;
  virtual std::vector<int64_t> counts(const model::Tensors& micro_batch) const = 0;
  // Whether a micro-batch (or a window) with these counts has anything to train on.
  virtual bool trains(std::span<const int64_t> counts) const = 0;
  // Adds the boundaries that carry the window's normalisation, so that the window's loss is the sum of its
  // micro-batches'.
  virtual void weigh(model::Tensors& micro_batch, const Window& window) const = 0;
  // The scalar boundary to differentiate, and the F64 boundary of sums (sum_size elements) that is added up for
  // metrics.
  virtual std::string loss() const = 0;
  virtual std::string sums() const = 0;
  virtual size_t sum_size() const = 0;
  // Named numbers of one window from its sums (added in global order) and counts.
  virtual std::vector<std::pair<std::string, double>> metrics(std::span<const double> sums,
                                                              const Window& window) const = 0;
};

}  // namespace sf::train
