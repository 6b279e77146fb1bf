// SPDX-License-Identifier: Apache-2.0
// The values a new parameter starts with.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "ckpt/checkpoint.h"

namespace sf::tool {

using Sink = ckpt::TensorSource::Sink;

// One parameter to make: what it is, how it starts (arch::Parameter's words) and with which seed.
struct Start {
  std::string name, init;
  Shape shape;
  uint64_t seed;
};
// Writes them as `as`: a function of (seed, name, element) alone, or of the target's tensors. `rows`: the target's rows
// that "rows:" takes.
void write_start(const Start& start, const ckpt::Checkpoint& target, const std::vector<int64_t>& rows, Dtype as,
                 const Sink& sink);

}  // namespace sf::tool
