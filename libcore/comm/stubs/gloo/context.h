// SPDX-License-Identifier: Apache-2.0
// Gloo is inside LibTorch, its headers are not. LibTorch's own header names these members in inline code only; we never
// make, destroy or look into an object of Gloo, so no layout depends on this declaration.
#pragma once
#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
  std::chrono::milliseconds getTimeout() const;
};

}  // namespace gloo
