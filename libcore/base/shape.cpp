// SPDX-License-Identifier: Apache-2.0
#include "base/shape.h"

#include <fmt/format.h>

#include <cstring>

#include "base/error.h"
#include "base/host_pool.h"

namespace sf {

int64_t numel(const Shape& shape) {
  int64_t product = 1;
  for (int64_t extent : shape) {
    SF_CHECK(extent >= 0 && !__builtin_mul_overflow(product, extent, &product), Exit::kData,
             "shape {} is negative or too large", to_string(shape));
  }
  return product;
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

HostTensor::HostTensor(Dtype dtype, Shape shape) : dtype_(dtype), shape_(std::move(shape)) {
  bytes_ = static_cast<size_t>(numel(shape_)) * size_of(dtype);
  size_t room = (bytes_ + 63) / 64 * 64 + (bytes_ == 0 ? 64 : 0);
  data_ = host_memory(room);
}

HostTensor HostTensor::copy_of(const TensorView& view) {
  HostTensor copy(view.dtype, view.shape);
  if (copy.bytes_) std::memcpy(copy.data(), view.data, copy.bytes_);
  return copy;
}

}  // namespace sf
