// SPDX-License-Identifier: Apache-2.0
// A frozen vocabulary head and its cross-entropy as one operator that sees the table chunk by chunk (eagle_dflash 2.5):
// no logits beyond one chunk's, so the table may come from anywhere, and twice. sharding_engine 4.9.
#pragma once
#include <cstdint>
#include <memory>

#include "tensor/tensor.h"

namespace sf::ops {
namespace plain {
struct LabelRows;
}

// Forward: see() the whole table, in ascending chunks; then nll() and top1(). Backward: differentiate() the whole table
// again, then gradient(). Logits, soft-max and sums are fp32; memory beside the arguments: logits of one chunk.
// The bits depend on where the chunks are cut, not on who holds them.
class VocabularyHead {
 public:
  // x: [R, H] fp32 or bf16, detached here; labels: I64 [R], each in [0, vocab).
  VocabularyHead(const at::Tensor& x, const at::Tensor& labels, int64_t vocab);

  // rows: [C, H] of x's type: the table's rows [first, first + C). kSoftware if a chunk is left out.
  void see(int64_t first, const at::Tensor& rows);
  at::Tensor nll() const;   // F32 [R]: -log softmax(x table^T)[label]
  at::Tensor top1() const;  // I64 [R]: the lowest id wins a tie

  // upstream: F32 [R], the gradient of nll.
  void differentiate(const at::Tensor& upstream, int64_t first, const at::Tensor& rows);
  at::Tensor gradient() const;  // [R, H] of x's type; sums over chunks in fp32, rounded once

 private:
  void advance(int64_t first, const at::Tensor& rows);

  at::Tensor x_, labels_, seen_;                  // seen_: I32 [R, 4], the bytes of a LabelRow each
  std::shared_ptr<const plain::LabelRows> rows_;  // in its place, off the CPU; replaced as a whole, so copies share it
  at::Tensor gradient_;                           // F32 [R, H]
  int64_t vocab_, next_ = 0;
};

inline constexpr int64_t kHeadChunk = 8192;  // rows; of bf16 rows of 4096, 64 MiB

struct HeadLoss {
  at::Tensor nll;   // F32 [R], differentiable in x
  at::Tensor top1;  // I64 [R]
};
// The same with the whole table at hand ([V, H], frozen), cut every `chunk` rows; logits are computed again for the
// gradient.
HeadLoss vocabulary_head(const at::Tensor& x, const at::Tensor& table, const at::Tensor& labels,
                         int64_t chunk = kHeadChunk);

}  // namespace sf::ops
