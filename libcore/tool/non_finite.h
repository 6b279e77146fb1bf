// SPDX-License-Identifier: Apache-2.0
// Weights that are NaN or infinite, counted on their way into a file: none of the verbs that publish lets them pass
// unsaid.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "ckpt/checkpoint.h"
#include "tool/progress.h"

namespace sf::tool {

// Elements that are NaN or infinite among little-endian elements of a floating type; 0 for any other type.
int64_t non_finite(std::span<const std::byte> bytes, Dtype type);

class NonFinite {
 public:
  // Looks at every element that is written of these tensors, which this object outlives. `strict`: kData at the end of
  // the first tensor that holds any.
  void watch(std::vector<ckpt::TensorSource>& tensors, bool strict = false);
  // One warning that names the tensors with their counts; nothing if there was none.
  void warn(const Reporter& report) const;

 private:
  std::vector<std::string> found_;  // "NAME (n of m values)"
};

}  // namespace sf::tool
