// SPDX-License-Identifier: Apache-2.0
// A segment's parameters on a device that is not the host, for its turn.
#pragma once
#include <map>
#include <optional>

#include "engine/store.h"

namespace sf::engine {

class Copies {
 public:
  // `store` outlives this.
  Copies(const Store& store, at::Device device) : store_(store), device_(device) {}

  // Nothing on the CPU: there a segment computes with the store's own leaves. Elsewhere the group, which is in its
  // slot, as leaves of this turn; what only load() changes is copied once and kept.
  std::optional<Leaves> bring(size_t group);
  void forget() { kept_.clear(); }  // something was loaded

 private:
  at::Tensor copy(const at::Tensor& leaf);

  const Store& store_;
  at::Device device_;
  std::map<const void*, at::Tensor> kept_;  // by the store's leaf
};

}  // namespace sf::engine
