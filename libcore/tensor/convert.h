// SPDX-License-Identifier: Apache-2.0
// Between the plain structs that rooms hand each other and at::Tensor.
#pragma once
#include "base/shape.h"
#include "tensor/tensor.h"

namespace sf::tensor {

at::ScalarType to_scalar(Dtype type);
Dtype to_dtype(at::ScalarType type);  // kData for a type without a safetensors name here

// Zero copy, shares the HostTensor's bytes and keeps them alive. A shared HostTensor is read-only: so is the result.
at::Tensor share(const HostTensor& host);
// Zero copy of bytes somebody else owns: the caller keeps them alive, and does not write through the result.
at::Tensor borrow(const TensorView& view);
// Zero copy of a writable span.
at::Tensor borrow(std::span<float> values);

at::Tensor copy(const TensorView& view);                 // owns its bytes
at::Tensor copy(const TensorView& view, Dtype as);       // converts between floating types
HostTensor to_host(const at::Tensor& tensor);            // copies; any strides, any graph (detached)
HostTensor to_host(const at::Tensor& tensor, Dtype as);  // converts between floating types

// View of a contiguous CPU tensor's bytes, valid as long as the tensor. kSoftware if it is not contiguous.
TensorView view(const at::Tensor& tensor);

}  // namespace sf::tensor
