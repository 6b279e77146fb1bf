// SPDX-License-Identifier: Apache-2.0
// Kernels own no threads: the caller hands them a way to run pieces, and the pieces never share an output element.
#pragma once
#include <cstddef>
#include <functional>

namespace sf::kernels {

// Runs body(begin, end) over a partition of [0, count); must not return before all pieces are done. An empty function
// means: run the whole range on the calling thread. The partition never changes a result.
using Parallel = std::function<void(size_t count, const std::function<void(size_t begin, size_t end)>& body)>;

inline void run(const Parallel& parallel, size_t count, const std::function<void(size_t, size_t)>& body) {
  if (count == 0) return;
  if (parallel)
    parallel(count, body);
  else
    body(0, count);
}

}  // namespace sf::kernels
