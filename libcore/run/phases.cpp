// SPDX-License-Identifier: Apache-2.0
#include "run/phases.h"

#include <algorithm>
#include <utility>

#include "base/deadline.h"
#include "tensor/memory.h"

namespace sf::run {

Phases::Phases(std::string first, double began) : name_(std::move(first)), since_(began) {}

void Phases::note() {
  const double now = monotonic_s();
  Spent& spent = spent_[name_];
  spent.seconds += now - std::exchange(since_, now);
  spent.peak_bytes = std::max(spent.peak_bytes, tensor::memory().peak);
  peak_bytes_ = std::max(peak_bytes_, spent.peak_bytes);
  tensor::mark_memory();
}

void Phases::enter(const std::string& name) {
  if (name == name_) return;
  note();
  name_ = name;
}

std::map<std::string, Phases::Spent> Phases::take() {
  note();
  return std::exchange(spent_, {});
}

}  // namespace sf::run
