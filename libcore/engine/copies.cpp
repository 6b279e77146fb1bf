// SPDX-License-Identifier: Apache-2.0
#include "engine/copies.h"

#include "base/fault.h"

namespace sf::engine {

std::optional<Leaves> Copies::bring(size_t group) {
  if (device_.is_cpu()) return std::nullopt;
  const Leaves& here = store_.leaves(group);
  Leaves there;
  std::map<const void*, at::Tensor> moved;  // one leaf may have several names
  auto move = [&](const at::Tensor& leaf) {
    at::Tensor& copied = moved[leaf.unsafeGetTensorImpl()];
    if (!copied.defined()) copied = copy(leaf);
    return copied;
  };
  for (const auto& [name, leaf] : here.by_name) there.by_name[name] = move(leaf);
  for (const at::Tensor& leaf : here.trainable) there.trainable.push_back(move(leaf));
  return there;
}

at::Tensor Copies::copy(const at::Tensor& leaf) {
  auto fresh = [&] { return leaf.detach().to(device_).set_requires_grad(leaf.requires_grad()); };
  if (!store_.is_fixed(leaf) && !fault("engine.keep_copies")) return fresh();
  at::Tensor& kept = kept_[leaf.unsafeGetTensorImpl()];
  if (!kept.defined()) kept = fresh();
  return kept;
}

}  // namespace sf::engine
