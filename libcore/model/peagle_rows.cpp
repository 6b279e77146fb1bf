// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "model/peagle.h"

namespace sf::model {
namespace {

at::Tensor integers(const Tensors& batch, const char* name) {
  return batch.at(name).to(at::kLong).contiguous();
}

// One row of the batch.
struct Place {
  int64_t row, width, length;
  const int64_t *token, *mask, *top1;
};

class Rows {
 public:
  Rows(const arch::Peagle& draft, const Eagle3Vocabulary& vocabulary, const PeagleOptions& options)
      : draft_(draft), in_draft_(vocabulary.t2d.to(at::kBool).contiguous()), options_(options) {}

  void add(const Place& at, int64_t anchor, int64_t depth) {
    int64_t label = anchor + depth, next = label + 1;
    bool supervised =
        options_.reference_quirks ? label < at.length && at.mask[label] != 0 : next < at.length && at.mask[next] != 0;
    if (supervised) {
      int64_t choice = next < at.length ? at.top1[next] : 0;
      SF_CHECK(choice >= 0 && choice < draft_.vocab, Exit::kData,
               "row {}, index {}: the target's top-1 id {} is outside its vocabulary of {}", at.row, next, choice,
               draft_.vocab);
      if (in_draft_.const_data_ptr<bool>()[choice]) {
        found.label_rows.push_back(std::ssize(found.rows));
        found.teacher_rows.push_back(next < at.length ? at.row * at.width + next : -1);
        found.label_depths.push_back(depth);
      }
    }
    int64_t token = depth > 0 ? draft_.mask_token : anchor + 1 < at.length ? at.token[anchor + 1] : 0;
    SF_CHECK(token >= 0 && token < draft_.vocab, Exit::kData, "token id {} is outside the vocabulary of {}", token,
             draft_.vocab);
    found.rows.push_back({at.row, anchor, depth});
    found.token_ids.push_back(token);
  }

  PeagleRows found;

 private:
  const arch::Peagle& draft_;
  at::Tensor in_draft_;
  const PeagleOptions& options_;
};

// The sampled rows of one batch row, checked: depths ascend by one, anchors ascend and are of the depth before.
void add_sampled(Rows& rows, const Place& at, const int64_t* anchors, const int64_t* depths, int64_t count) {
  std::vector<int64_t> before, now;
  int64_t depth = 0;
  for (int64_t n = 0; n < count && anchors[n] >= 0; ++n) {
    if (depths[n] != depth) {
      SF_CHECK(depths[n] == depth + 1, Exit::kData, "row {} of a micro-batch: depth {} follows depth {}", at.row,
               depths[n], depth);
      before = std::exchange(now, {}), ++depth;
    }
    bool held = depth == 1 ? anchors[n] < at.length : std::binary_search(before.begin(), before.end(), anchors[n]);
    SF_CHECK(held && (now.empty() || anchors[n] > now.back()), Exit::kData,
             "row {} of a micro-batch: anchor {} at depth {} is out of order, or no row of the depth before", at.row,
             anchors[n], depth);
    now.push_back(anchors[n]);
    rows.add(at, anchors[n], depth);
  }
}

void sort_labels(PeagleRows& found) {
  std::vector<size_t> order(found.label_rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return found.label_depths[a] < found.label_depths[b]; });
  for (std::vector<int64_t>* list : {&found.label_rows, &found.teacher_rows, &found.label_depths}) {
    std::vector<int64_t> sorted;
    for (size_t n : order) sorted.push_back((*list)[n]);
    *list = std::move(sorted);
  }
}

}  // namespace

PeagleRows peagle_rows(const Tensors& micro_batch, const arch::Peagle& draft, const Eagle3Vocabulary& vocabulary,
                       const PeagleOptions& options) {
  at::Tensor ids = integers(micro_batch, "input_ids"), mask = integers(micro_batch, "loss_mask");
  at::Tensor top1 = integers(micro_batch, "target_top1"), lengths = integers(micro_batch, "lengths");
  at::Tensor anchors = integers(micro_batch, "cod_anchors"), depths = integers(micro_batch, "cod_depths");
  Rows rows(draft, vocabulary, options);
  int64_t width = ids.size(1), sampled = anchors.size(1);
  for (int64_t b = 0; b < ids.size(0); ++b) {
    Place at{b,
             width,
             lengths.const_data_ptr<int64_t>()[b],
             ids.const_data_ptr<int64_t>() + b * width,
             mask.const_data_ptr<int64_t>() + b * width,
             top1.const_data_ptr<int64_t>() + b * width};
    SF_CHECK(at.length >= 0 && at.length <= width, Exit::kData, "row {} of a micro-batch has length {} of {}", b,
             at.length, width);
    for (int64_t i = 0; i < at.length; ++i) rows.add(at, i, 0);
    add_sampled(rows, at, anchors.const_data_ptr<int64_t>() + b * sampled,
                depths.const_data_ptr<int64_t>() + b * sampled, sampled);
  }
  for (int64_t depth : rows.found.label_depths)
    SF_CHECK(depth < options.depths, Exit::kData, "a row of depth {}, training.num_depths is {}", depth,
             options.depths);
  sort_labels(rows.found);
  return std::move(rows.found);
}

}  // namespace sf::model
