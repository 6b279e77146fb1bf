// SPDX-License-Identifier: Apache-2.0
// Named by LibTorch's header through pointers only.
#pragma once

namespace gloo::transport {

class Device;

class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = default;
};

}  // namespace gloo::transport
