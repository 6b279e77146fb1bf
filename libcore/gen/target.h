// SPDX-License-Identifier: Apache-2.0
// The target model for inference. One forward serves capture, prefill, decode and verification: a row's bits depend on
// its sequence alone, not on how many rows or sequences share the forward (shardforge(7), Numbers).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "arch/decoder.h"
#include "base/dtype.h"
#include "ckpt/checkpoint.h"
#include "gen/block.h"
#include "gen/cache.h"
#include "ops/packed_linear.h"

namespace sf::gen {

// New tokens of one sequence: appended at cache->length(). With `parents` (of each id, as Rows::add takes them) they
// are nodes of the tree behind it, and the cache's length stays.
struct Part {
  Cache* cache;
  std::span<const int32_t> ids;
  std::span<const int32_t> parents = {};
  void add_to(Rows& rows) const;
};

// What a forward leaves behind, one row a token in the order of the parts; compute dtype.
struct States {
  at::Tensor final_norm;  // [rows, H]
  std::vector<at::Tensor>
      captured;  // [rows, H] for each layer asked for: n = un-normed state after n blocks, 0 = embedding
};

class Target {
 public:
  // compute: kF32 or kBF16. kConfig for an architecture that cannot be described, kData for a missing or misshapen
  // tensor. With an adapter: the target merged with it, in fp32, rounded once to `compute`. `embedding`: the table of
  // look-ups, in its own type, instead of a copy of the checkpoint's; its memory outlives the target.
  static Target load(const ckpt::Checkpoint& checkpoint, Dtype compute, const ckpt::AdapterFiles* adapter = nullptr,
                     const at::Tensor& embedding = {});
  Target(const arch::Decoder& decoder, const Weights& weights);

  const arch::Decoder& decoder() const { return decoder_; }
  Dtype compute() const { return compute_; }
  Cache make_cache(int64_t capacity) const;
  // One forward. kData for an id outside the vocabulary (the caches are then unchanged).
  States forward(std::span<const Part> parts, std::span<const int64_t> capture = {});
  // One sequence of any length, in forwards cut at absolute multiples of 256 positions. All rows; the same bits as row
  // by row.
  States prefill(Cache& cache, std::span<const int32_t> ids, std::span<const int64_t> capture = {});
  at::Tensor logits(const at::Tensor& final_norm) const;  // fp32 [rows, V]
  ops::Top1 top1(const at::Tensor& final_norm) const;     // without the logits in memory
  at::Tensor embed(std::span<const int32_t> ids) const;   // [ids, H]; kData for an id outside the vocabulary
  int64_t forwards() const { return forwards_; }          // since construction; prefill counts each cut
  // Of all forwards from here on, on top of the weights as they were loaded; an empty one takes it away. What caches
  // hold is that of the adapter they were filled under. kConfig naming a parameter that cannot be adapted so (experts);
  // kData for factors of another shape.
  void adapt(const LiveAdapter& adapter);

 private:
  void load_vocabulary(const Weights& weights);

  arch::Decoder decoder_;
  Dtype compute_;
  std::shared_ptr<const model::Rotary> rotary_;
  at::Tensor table_, final_norm_;
  std::vector<at::Tensor> input_norms_;
  std::vector<Block> blocks_;
  std::vector<int64_t> places_;            // of a layer, among the caches' with attention or the recurrent ones
  int64_t attending_ = 0, recurrent_ = 0;  // how many there are of each
  ops::PackedLinear head_;
  int64_t forwards_ = 0;
};

}  // namespace sf::gen
