// SPDX-License-Identifier: Apache-2.0
// Extents of row-major tensors, and the views that rooms hand each other without LibTorch.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace sf {

using Shape = std::vector<int64_t>;

// Product of the extents; 1 for a 0-d tensor. Throws kData on a negative extent or overflow of int64.
int64_t numel(const Shape& shape);
std::string to_string(const Shape& shape);  // "[3, 4]"

// A row-major tensor that somebody else owns. Valid as long as the owner says.
struct TensorView {
  const std::byte* data = nullptr;
  Dtype dtype = Dtype::kF32;
  Shape shape;

  size_t bytes() const { return static_cast<size_t>(numel(shape)) * size_of(dtype); }
  std::span<const std::byte> span() const { return {data, bytes()}; }
};

// A row-major tensor that owns its bytes (64-byte aligned). Copies share the bytes: treat a shared one as read-only.
class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(Dtype dtype, Shape shape);  // zero filled
  static HostTensor copy_of(const TensorView& view);

  Dtype dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  size_t bytes() const { return bytes_; }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  TensorView view() const { return {data_.get(), dtype_, shape_}; }
  template <typename T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data_.get()), bytes_ / sizeof(T)};
  }
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_.get()), bytes_ / sizeof(T)};
  }
  const std::shared_ptr<std::byte>& storage() const { return data_; }

 private:
  Dtype dtype_ = Dtype::kF32;
  Shape shape_;
  size_t bytes_ = 0;
  std::shared_ptr<std::byte> data_;
};

// A named tensor, the coin of samples, checkpoints and feature files.
struct NamedTensor {
  std::string name;
  HostTensor tensor;
};

}  // namespace sf
