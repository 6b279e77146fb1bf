// SPDX-License-Identifier: Apache-2.0
// Memory of host tensors that come and go in a steady stream. The first touch of a page costs several times what
// filling it again does, so what is dropped here is handed out once more instead of going back to the system.
#pragma once
#include <cstddef>
#include <memory>

#include "base/shape.h"

namespace sf {

// Safe from every thread. Tensors may outlive the pool; their memory then goes back to the system.
class HostPool {
 public:
  // Lent and kept memory together stay within `limit` bytes: beyond it dropped memory is not kept.
  explicit HostPool(size_t limit);

  // Its bytes are not set: whoever asks writes every one of them before anybody reads. kData as numel().
  HostTensor unfilled(Dtype dtype, Shape shape);
  size_t kept() const;  // bytes that wait to be handed out again

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// For HostTensor's constructor: `room` bytes (a multiple of 64), of the pool whose unfilled() is at work on this
// thread; without one new and zero filled. std::bad_alloc.
std::shared_ptr<std::byte> host_memory(size_t room);

}  // namespace sf
