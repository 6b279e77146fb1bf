// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "base/fault.h"
#include "model/block_backbone.h"

namespace sf::model {
namespace {

at::Tensor integers(const Tensors& batch, const char* name) {
  return batch.at(name).to(at::kLong).contiguous();
}

struct Place {
  const int64_t *token, *mask;  // of the row
  int64_t length, anchor;
};

void add_block(DflashBlocks& found, const Place& at, const arch::Dflash& draft, BlockLabels labels) {
  bool open = true;
  for (int64_t k = 0; k < draft.block; ++k) {
    int64_t here = at.anchor + k, label = here + (labels.next ? 1 : 0);
    bool supervised = label < at.length && (at.mask[label] != 0 || fault("model.label_everything"));
    if (labels.contiguous && !supervised) open = false;
    if (supervised && open && label > at.anchor) {
      found.label_slots.push_back(std::ssize(found.slot_ids));
      found.label_ids.push_back(at.token[label]);
      found.label_offsets.push_back(k);
    }
    found.slot_ids.push_back(k == 0 ? at.token[at.anchor] : draft.mask_token);
    found.token_ids.push_back(here < at.length ? at.token[here] : 0);
  }
}

}  // namespace

DflashBlocks dflash_blocks(const Tensors& micro_batch, const arch::Dflash& draft, BlockLabels labels) {
  at::Tensor ids = integers(micro_batch, "input_ids"), mask = integers(micro_batch, "loss_mask");
  at::Tensor lengths = integers(micro_batch, "lengths"), anchors = integers(micro_batch, "anchors");
  int64_t rows = ids.size(0), width = ids.size(1);
  SF_ASSERT(mask.sizes() == ids.sizes() && lengths.size(0) == rows && anchors.size(0) == rows);
  DflashBlocks found;
  for (int64_t b = 0; b < rows; ++b) {
    int64_t length = lengths.const_data_ptr<int64_t>()[b], last = -1;
    SF_CHECK(length >= 0 && length <= width, Exit::kData, "row {} of a micro-batch has length {} of {}", b, length,
             width);
    const int64_t *token = ids.const_data_ptr<int64_t>() + b * width, *m = mask.const_data_ptr<int64_t>() + b * width;
    for (int64_t n = 0; n < anchors.size(1); ++n) {
      int64_t anchor = anchors.const_data_ptr<int64_t>()[b * anchors.size(1) + n];
      if (anchor < 0) continue;
      SF_CHECK(anchor < length, Exit::kData, "row {} of a micro-batch: anchor {} in a row of {} tokens", b, anchor,
               length);
      last = std::max(last, anchor);
      found.blocks.push_back({b, anchor});
      add_block(found, {token, m, length, anchor}, draft, labels);
    }
    for (int64_t i = 0; i < last; ++i) found.context_rows.push_back(b * width + i);
  }
  for (const std::vector<int64_t>* list : {&found.slot_ids, &found.token_ids, &found.label_ids})
    for (int64_t id : *list)
      SF_CHECK(id >= 0 && id < draft.vocab, Exit::kData, "token id {} is outside the vocabulary of {}", id,
               draft.vocab);
  return found;
}

}  // namespace sf::model
