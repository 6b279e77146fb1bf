// SPDX-License-Identifier: Apache-2.0
#include "gen/cache.h"

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "gen/weights.h"

namespace sf::gen {

Cache::Cache(int64_t layers, int64_t kv_heads, int64_t head_dim, int64_t capacity, Dtype dtype)
    : capacity_(capacity), storage_(at::empty({layers, 2, kv_heads, capacity, head_dim}, scalar_type(dtype))) {}

void Cache::truncate(int64_t length) {
  SF_ASSERT(length >= 0 && length <= length_);
  length_ = length;
}

at::Tensor Cache::keys(int64_t layer) const {
  return storage_.select(0, layer).select(0, 0);
}
at::Tensor Cache::values(int64_t layer) const {
  return storage_.select(0, layer).select(0, 1);
}

}  // namespace sf::gen
