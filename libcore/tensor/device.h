// SPDX-License-Identifier: Apache-2.0
// Tensors on two devices. What describes a micro-batch (ids, masks, places, positions) stays on the host; an operator
// or a segment brings it beside the values where these need it. On the host alone nothing is copied.
#pragma once
#include <ATen/ops/index_select.h>

#include "tensor/tensor.h"

namespace sf::tensor {

// `tensor` on the device of `other`. Differentiable.
inline at::Tensor beside(const at::Tensor& tensor, const at::Tensor& other) {
  return tensor.device() == other.device() ? tensor : tensor.to(other.device());
}

inline at::Tensor on_host(const at::Tensor& tensor) {
  return tensor.is_cpu() ? tensor : tensor.to(at::kCPU);
}

// Rows of `from` along `dim`, wherever `places` (I64) lies. Differentiable.
inline at::Tensor select(const at::Tensor& from, int64_t dim, const at::Tensor& places) {
  return from.index_select(dim, beside(places, from));
}

// Most bytes that LibTorch's allocator of a device gave out at once; 0 on the CPU (see memory.h),
// and where the device's allocator does not count.
uint64_t device_peak(at::Device device);

}  // namespace sf::tensor
