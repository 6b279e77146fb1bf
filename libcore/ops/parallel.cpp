// SPDX-License-Identifier: Apache-2.0
#include "ops/parallel.h"

#include <ATen/Parallel.h>

namespace sf::ops {

kernels::Parallel parallel(size_t grain) {
  return [grain](size_t count, const std::function<void(size_t, size_t)>& body) {
    at::parallel_for(0, static_cast<int64_t>(count), static_cast<int64_t>(grain),
                     [&](int64_t begin, int64_t end) { body(static_cast<size_t>(begin), static_cast<size_t>(end)); });
  };
}

}  // namespace sf::ops
