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

// see() the whole table once, in ascending chunks; then nll(), top1() and gradient(). What a row's gradient is made of
// is summed while its largest logit is still in doubt and scaled down when a larger one is seen, as attention does it
// (Milakov and Gimelshein 2018), so that backward needs the table no more. Logits, soft-max and sums are fp32, the
// exponentials of a product are rounded to x's type; memory beside the arguments: logits of one chunk and, with
// `gradient`, twice x in fp32. The bits depend on where the chunks are cut, not on who holds them.
class VocabularyHead {
 public:
  // x: [R, H] fp32 or bf16, detached here; labels: I64 [R], each in [0, vocab).
  VocabularyHead(const at::Tensor& x, const at::Tensor& labels, int64_t vocab, bool gradient);

  // rows: [C, H] of x's type: the table's rows [first, first + C). kSoftware if a chunk is left out.
  void see(int64_t first, const at::Tensor& rows);
  at::Tensor nll() const;   // F32 [R]: -log softmax(x table^T)[label]
  at::Tensor top1() const;  // I64 [R]: the lowest id wins a tie

  // upstream: F32 [R], the gradient of nll -> [R, H] of x's type, rounded once.
  at::Tensor gradient(const at::Tensor& upstream) const;

 private:
  void advance(int64_t first, const at::Tensor& rows);
  void keep_labels(int64_t first, const at::Tensor& rows);

  at::Tensor x_, labels_, seen_;                  // seen_: I32 [R, 4], the bytes of a LabelRow each
  std::shared_ptr<const plain::LabelRows> rows_;  // in its place, off the CPU; replaced as a whole, so copies share it
  at::Tensor sum_;                                // F32 [R, H]: of e^(z - top) times rows, but for the label's
  at::Tensor at_labels_;                          // [R, H]: the rows of the labels
  int64_t vocab_, next_ = 0;
};

inline constexpr int64_t kHeadChunk = 8192;  // rows; of bf16 rows of 4096, 64 MiB

struct HeadLoss {
  at::Tensor nll;   // F32 [R], differentiable in x
  at::Tensor top1;  // I64 [R]
};
// The same with the whole table at hand ([V, H], frozen), cut every `chunk` rows.
HeadLoss vocabulary_head(const at::Tensor& x, const at::Tensor& table, const at::Tensor& labels,
                         int64_t chunk = kHeadChunk);

}  // namespace sf::ops
