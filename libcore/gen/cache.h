// SPDX-License-Identifier: Apache-2.0
// Keys and values of one sequence, for every layer of a target or draft (models_text_scoring 1.8).
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "tensor/tensor.h"

namespace sf::gen {

// Preallocated: [layers, 2, nKV, capacity, hd]. Entry t of a layer belongs to position t; keys lie after norm and
// rotary.
class Cache {
 public:
  Cache() = default;
  Cache(int64_t layers, int64_t kv_heads, int64_t head_dim, int64_t capacity, Dtype dtype);

  int64_t length() const { return length_; }      // positions held: 0 .. length - 1
  int64_t capacity() const { return capacity_; }  // 0: not allocated
  void truncate(int64_t length);                  // rollback; kSoftware if that is not shorter
  at::Tensor keys(int64_t layer) const;           // [nKV, capacity, hd], a view
  at::Tensor values(int64_t layer) const;

 private:
  friend class Rows;
  int64_t length_ = 0, capacity_ = 0;
  at::Tensor storage_;
};

}  // namespace sf::gen
