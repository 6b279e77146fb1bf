// SPDX-License-Identifier: Apache-2.0
// Parameters of an inference model: from a checkpoint, or from tensors in memory.
#pragma once
#include <functional>
#include <span>
#include <string>

#include "base/dtype.h"
#include "base/shape.h"
#include "ckpt/adapter.h"
#include "ckpt/checkpoint.h"
#include "model/segment.h"
#include "ops/packed_linear.h"

namespace sf::gen {

at::ScalarType scalar_type(Dtype dtype);  // fp32 or bf16; kConfig otherwise

class Weights {
 public:
  // All must outlive this object. Tensors come out in `compute` (fp32 or bf16), merged with `adapter` if there is one.
  Weights(const ckpt::Checkpoint& checkpoint, Dtype compute, const ckpt::AdapterFiles* adapter = nullptr);
  Weights(const model::Tensors& tensors, Dtype compute);

  // The named tensor is this one, in its own type; its memory outlives what is made of the weights.
  void lend(const std::string& name, const at::Tensor& tensor) { lent_[name] = tensor; }

  bool contains(const std::string& name) const;
  // In `compute`, or as it was lent. kData naming the tensor if absent or of another shape.
  at::Tensor get(const std::string& name, const Shape& shape) const;
  at::Tensor maybe(const std::string& name, const Shape& shape, bool wanted) const;  // undefined if not wanted
  // The named [n_i, in] matrices one below the other as one linear layer.
  ops::PackedLinear pack(std::span<const std::string> names, std::span<const int64_t> rows, int64_t in) const;
  Dtype compute() const { return compute_; }

 private:
  const ckpt::Checkpoint* checkpoint_ = nullptr;
  const ckpt::AdapterFiles* adapter_ = nullptr;
  const model::Tensors* tensors_ = nullptr;
  model::Tensors lent_;
  Dtype compute_;
};

}  // namespace sf::gen
