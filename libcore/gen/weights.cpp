// SPDX-License-Identifier: Apache-2.0
#include "gen/weights.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "base/error.h"

namespace sf::gen {

at::ScalarType scalar_type(Dtype dtype) {
  if (dtype == Dtype::kF32) return at::kFloat;
  SF_CHECK(dtype == Dtype::kBF16, Exit::kConfig, "inference computes in F32 or BF16, not {}", name_of(dtype));
  return at::kBFloat16;
}

Weights::Weights(const ckpt::Checkpoint& checkpoint, Dtype compute, const ckpt::AdapterFiles* adapter)
    : checkpoint_(&checkpoint), adapter_(adapter), compute_(compute) {
  scalar_type(compute);
}
Weights::Weights(const model::Tensors& tensors, Dtype compute) : tensors_(&tensors), compute_(compute) {
  scalar_type(compute);
}

bool Weights::contains(const std::string& name) const {
  return checkpoint_ ? checkpoint_->contains(name) : tensors_->contains(name);
}

at::Tensor Weights::get(const std::string& name, const Shape& shape) const {
  const at::ScalarType type = scalar_type(compute_);
  Shape found;
  const auto lent = lent_.find(name);
  if (lent != lent_.end()) {
    found = lent->second.sizes().vec();
  } else if (checkpoint_) {
    found = checkpoint_->info(name).shape;
  } else {
    auto it = tensors_->find(name);
    SF_CHECK(it != tensors_->end(), Exit::kData, "tensor {} is missing", name);
    found = it->second.sizes().vec();
  }
  SF_CHECK(found == shape, Exit::kData, "tensor {} has shape {}, wanted {}", name, to_string(found), to_string(shape));
  if (lent != lent_.end()) return lent->second;
  if (tensors_) return tensors_->find(name)->second.detach().to(type).contiguous();
  at::Tensor out = at::empty(shape, type);
  std::span<std::byte> bytes(static_cast<std::byte*>(out.data_ptr()), out.nbytes());
  if (adapter_)
    ckpt::read_merged(*checkpoint_, *adapter_, name, 0, numel(shape), compute_, bytes);
  else
    checkpoint_->read(name, 0, numel(shape), compute_, bytes);
  return out;
}

at::Tensor Weights::maybe(const std::string& name, const Shape& shape, bool wanted) const {
  return wanted ? get(name, shape) : at::Tensor();
}

ops::PackedLinear Weights::pack(std::span<const std::string> names, std::span<const int64_t> rows, int64_t in) const {
  SF_ASSERT(names.size() == rows.size() && !names.empty());
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < names.size(); ++i) parts.push_back(get(names[i], {rows[i], in}));
  return ops::PackedLinear::pack(parts.size() == 1 ? parts.front() : at::cat(parts, 0), compute_);
}

}  // namespace sf::gen
