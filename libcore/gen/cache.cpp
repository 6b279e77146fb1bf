// SPDX-License-Identifier: Apache-2.0
#include "gen/cache.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/error.h"
#include "base/fault.h"
#include "gen/tree.h"
#include "gen/weights.h"

namespace sf::gen {

Cache::Cache(int64_t layers, int64_t kv_heads, int64_t head_dim, int64_t capacity, Dtype dtype,
             std::vector<Recurrent> recurrent)
    : capacity_(capacity),
      storage_(at::empty({layers, 2, kv_heads, capacity, head_dim}, scalar_type(dtype))),
      recurrent_(std::move(recurrent)) {}

void Cache::truncate(int64_t length) {
  SF_ASSERT(length >= 0 && length <= length_);
  length_ = length;
  parents_.clear();
}

void Cache::copy(const Cache& other) {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  SF_ASSERT(other.length_ <= capacity_ && other.nodes() == 0 && recurrent_.size() == other.recurrent_.size());
  storage_.narrow(3, 0, other.length_).copy_(other.storage_.narrow(3, 0, other.length_));
  for (size_t i = 0; i < recurrent_.size() && !fault("gen.copy_keys_alone"); ++i)
    recurrent_[i] = other.recurrent_[i].snapshot();
  length_ = other.length_;
  parents_.clear();
}

std::vector<int32_t> Cache::path_to(int32_t node) const {
  std::vector<int32_t> path;
  for (; node != kTrunk; node = parents_[static_cast<size_t>(node)]) path.push_back(node);
  std::ranges::reverse(path);
  return path;
}

void Cache::keep(std::span<const int32_t> path) {
  at::AutoDispatchBelowADInplaceOrView no_gradients;
  SF_ASSERT(!path.empty() && std::ranges::equal(path_to(path.back()), path));
  for (size_t i = 0; i < path.size(); ++i, ++length_)
    if (!fault("gen.keep_last_path")) storage_.select(3, length_).copy_(storage_.select(3, parked(path[i])));
  for (Recurrent& layer : recurrent_) layer.keep(path);
  parents_.clear();
}

at::Tensor Cache::keys(int64_t layer) const {
  return storage_.select(0, layer).select(0, 0);
}
at::Tensor Cache::values(int64_t layer) const {
  return storage_.select(0, layer).select(0, 1);
}

}  // namespace sf::gen
