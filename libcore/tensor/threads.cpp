// SPDX-License-Identifier: Apache-2.0
#include "tensor/threads.h"

#include <ATen/Parallel.h>

#include "base/error.h"

namespace sf::tensor {

void set_threads(int n) {
  SF_CHECK(n >= 1, Exit::kConfig, "threads must be at least 1, not {}", n);
  at::set_num_threads(n);
}

int threads() {
  return at::get_num_threads();
}

}  // namespace sf::tensor
