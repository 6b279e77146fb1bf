// SPDX-License-Identifier: Apache-2.0
#include "tensor/threads.h"

#include <ATen/Parallel.h>

#include <atomic>

#include "base/error.h"

namespace sf::tensor {
namespace {

thread_local int own = 0;
std::atomic<int> others{0};

}  // namespace

void set_threads(int n) {
  SF_CHECK(n >= 1, Exit::kConfig, "threads must be at least 1, not {}", n);
  at::set_num_threads(1);
  own = n;
  others = n;
}

int threads() {
  if (own > 0) return own;
  const int n = others;
  return n > 0 ? n : at::get_num_threads();
}

}  // namespace sf::tensor
