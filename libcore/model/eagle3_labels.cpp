// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "base/fault.h"
#include "model/eagle3.h"

namespace sf::model {
namespace {

struct Row {
  const int64_t *mask, *top1;
  int64_t length;
};

// The mask of label i under the rule in force. The corrected rule has no label for the last token: its teacher is
// unknown.
bool masked_in(const Row& row, int64_t i, bool quirks) {
  if (quirks || fault("model.mask_shift")) return row.mask[i] != 0;
  return i + 1 < row.length && row.mask[i + 1] != 0;
}

// The teacher beyond the row's end is the zero vector in the reference: uniform, so its top-1 is id 0.
int64_t teacher_top1(const Row& row, int64_t i) {
  return i + 1 < row.length ? row.top1[i + 1] : 0;
}

}  // namespace

Eagle3Labels eagle3_labels(const Tensors& micro_batch, const Eagle3Vocabulary& vocabulary,
                           const Eagle3Options& options) {
  at::Tensor mask = micro_batch.at("loss_mask").to(at::kLong).contiguous();
  at::Tensor top1 = micro_batch.at("target_top1").to(at::kLong).contiguous();
  at::Tensor lengths = micro_batch.at("lengths").to(at::kLong).contiguous();
  at::Tensor in_draft = vocabulary.t2d.contiguous();
  SF_ASSERT(in_draft.scalar_type() == at::kBool && mask.sizes() == top1.sizes() && lengths.size(0) == mask.size(0));
  int64_t rows = mask.size(0), width = mask.size(1), vocab = in_draft.size(0);
  Eagle3Labels labels;
  labels.trained_count.assign(options.unroll, 0);
  labels.supervised_count.assign(options.unroll, 0);
  for (int64_t b = 0; b < rows; ++b) {
    Row row{mask.const_data_ptr<int64_t>() + b * width, top1.const_data_ptr<int64_t>() + b * width,
            lengths.const_data_ptr<int64_t>()[b]};
    SF_CHECK(row.length >= 0 && row.length <= width, Exit::kData, "row {} of a micro-batch has length {} of {}", b,
             row.length, width);
    for (int64_t i = 0; i < row.length; ++i) {
      if (!masked_in(row, i, options.reference_quirks)) continue;
      int64_t token = teacher_top1(row, i);
      SF_CHECK(token >= 0 && token < vocab, Exit::kData,
               "row {}, index {}: the target's top-1 id {} is outside its vocabulary of {}", b, i + 1, token, vocab);
      bool trained = in_draft.const_data_ptr<bool>()[token];
      if (trained) labels.trained.push_back(b * width + i);
      for (int k = 0; k < options.unroll && k <= i; ++k) {
        ++labels.supervised_count[k];
        labels.trained_count[k] += trained;
      }
    }
  }
  return labels;
}

}  // namespace sf::model
