// SPDX-License-Identifier: Apache-2.0
// What a target or draft keeps of one sequence: keys and values of layers with attention (models_text_scoring 1.8),
// states of those without.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "gen/recurrent.h"
#include "tensor/tensor.h"

namespace sf::gen {

// Preallocated: [layers, 2, nKV, capacity, hd]. Entry t of a layer belongs to position t; keys lie after norm and
// rotary.
//
// Behind the positions held a tree of alternatives may grow (gen/tree.h). Node n's keys and values are parked at the
// storage's far end, entry capacity - 1 - n; while a row is computed, its path from the trunk lies in the entries right
// behind the positions held, so that attention takes the same keys in the same places as in plain decoding.
class Cache {
 public:
  Cache() = default;
  Cache(int64_t layers, int64_t kv_heads, int64_t head_dim, int64_t capacity, Dtype dtype,
        std::vector<Recurrent> recurrent = {});

  int64_t length() const { return length_; }      // positions held: 0 .. length - 1
  int64_t capacity() const { return capacity_; }  // 0: not allocated
  void truncate(int64_t length);                  // rollback; kSoftware if that is not shorter
  void copy(const Cache& other);                  // its positions and states; of one model, and they must fit
  at::Tensor keys(int64_t layer) const;           // [nKV, capacity, hd], a view
  at::Tensor values(int64_t layer) const;
  Recurrent& recurrent(int64_t layer) { return recurrent_[static_cast<size_t>(layer)]; }

  int64_t nodes() const { return static_cast<int64_t>(parents_.size()); }
  int64_t parked(int32_t node) const { return capacity_ - 1 - node; }  // its entry
  std::vector<int32_t> path_to(int32_t node) const;                    // from the trunk's child to it
  // The nodes of a path from the trunk become positions; the rest of the tree goes.
  void keep(std::span<const int32_t> path);

 private:
  friend class Rows;
  int64_t length_ = 0, capacity_ = 0;
  std::vector<int32_t> parents_;  // of each node; kTrunk or an earlier node
  at::Tensor storage_;
  std::vector<Recurrent> recurrent_;
};

}  // namespace sf::gen
