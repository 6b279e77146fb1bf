// SPDX-License-Identifier: Apache-2.0
#include "tensor/convert.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstring>

#include "base/error.h"

namespace sf::tensor {

namespace {

struct Pair {
  Dtype ours;
  at::ScalarType theirs;
};
constexpr Pair kTypes[] = {{Dtype::kF32, at::kFloat},  {Dtype::kF16, at::kHalf}, {Dtype::kBF16, at::kBFloat16},
                           {Dtype::kF64, at::kDouble}, {Dtype::kI64, at::kLong}, {Dtype::kI32, at::kInt},
                           {Dtype::kI16, at::kShort},  {Dtype::kI8, at::kChar},  {Dtype::kU8, at::kByte},
                           {Dtype::kBool, at::kBool}};

}  // namespace

at::ScalarType to_scalar(Dtype type) {
  for (const Pair& pair : kTypes) {
    if (pair.ours == type) return pair.theirs;
  }
  fail(Exit::kSoftware, "element type {} has no tensor type", static_cast<int>(type));
}

Dtype to_dtype(at::ScalarType type) {
  for (const Pair& pair : kTypes) {
    if (pair.theirs == type) return pair.ours;
  }
  fail(Exit::kData, "a tensor of type {} cannot leave the tensor library", c10::toString(type));
}

at::Tensor share(const HostTensor& host) {
  std::shared_ptr<std::byte> keep = host.storage();
  return at::from_blob(
      const_cast<std::byte*>(host.data()), host.shape(), [keep](void*) {}, to_scalar(host.dtype()));
}

at::Tensor borrow(const TensorView& view) {
  return at::from_blob(const_cast<std::byte*>(view.data), view.shape, to_scalar(view.dtype));
}

at::Tensor borrow(std::span<float> values) {
  return at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kFloat);
}

at::Tensor copy(const TensorView& view) {
  at::Tensor out = at::empty(view.shape, to_scalar(view.dtype));
  if (view.bytes() > 0) std::memcpy(out.mutable_data_ptr(), view.data, view.bytes());
  return out;
}

at::Tensor copy(const TensorView& view, Dtype as) {
  if (view.dtype == as) return copy(view);
  return borrow(view).to(to_scalar(as));
}

HostTensor to_host(const at::Tensor& tensor) {
  return HostTensor::copy_of(view(tensor.detach().contiguous()));
}

HostTensor to_host(const at::Tensor& tensor, Dtype as) {
  return to_host(tensor.detach().to(to_scalar(as)));
}

TensorView view(const at::Tensor& tensor) {
  SF_ASSERT(tensor.is_contiguous() && tensor.is_cpu());
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), to_dtype(tensor.scalar_type()), tensor.sizes().vec()};
}

}  // namespace sf::tensor
