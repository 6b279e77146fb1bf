// SPDX-License-Identifier: Apache-2.0
// A chain of segments without an engine: one process, parameters whole.
#pragma once
#include <utility>
#include <vector>

#include "model/segment.h"

namespace sf::model {

// What is given, and what the segments write.
inline Tensors run_chain(const std::vector<Segment>& segments, const Tensors& parameters, Tensors boundaries) {
  for (const Segment& segment : segments)
    for (auto& [name, value] : segment.forward(parameters, boundaries)) boundaries[name] = std::move(value);
  return boundaries;
}

}  // namespace sf::model
