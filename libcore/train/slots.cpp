// SPDX-License-Identifier: Apache-2.0
#include "train/slots.h"

#include <ATen/ops/zeros.h>

#include <cmath>
#include <numeric>

namespace sf::train {

std::vector<int64_t> SlotObjective::counts(const model::Tensors& micro_batch) const {
  model::DflashBlocks blocks = model::dflash_blocks(micro_batch, form_.blocks, form_.labels);
  std::vector<int64_t> counts(count_size(), 0);
  int64_t last = -1;
  for (size_t n = 0; n < blocks.label_slots.size(); ++n) {
    ++counts[static_cast<size_t>(blocks.label_offsets[n])];
    int64_t block = blocks.label_slots[n] / form_.blocks.block;
    counts[slots() + kBlocks] += block != last;
    last = block;
  }
  counts[slots() + kMicroBatches] = 1;
  return counts;
}

double SlotObjective::weight(size_t slot) const {
  size_t first = form_.labels.next ? 0 : 1;
  if (slot < first) return 0;
  return form_.gamma > 0 ? std::exp(-static_cast<double>(slot - first) / form_.gamma) : 1;
}

double SlotObjective::denominator(std::span<const int64_t> counts) const {
  double sum = 0;
  for (size_t k = 0; k < slots(); ++k) sum += weight(k) * static_cast<double>(counts[k]);
  return sum;
}

void SlotObjective::weigh(model::Tensors& micro_batch, const Window& window) const {
  double divisor = denominator(window.counts);
  // The reference averages the micro-batches' means.
  if (form_.reference_quirks)
    divisor = (denominator(counts(micro_batch)) + form_.added) * behind(window.counts, kMicroBatches);
  at::Tensor weights = at::zeros({form_.blocks.block}, at::kFloat);
  for (size_t k = 0; k < slots() && divisor > 0; ++k)
    weights.mutable_data_ptr<float>()[k] = static_cast<float>(weight(k) / divisor);
  micro_batch["slot_weights"] = weights;
}

double SlotObjective::total(std::span<const double> sums, size_t columns, size_t column, bool weighted) const {
  double all = 0;
  for (size_t k = 0; k < slots(); ++k) all += sums[columns * k + column] * (weighted ? weight(k) : 1);
  return all;
}

int64_t SlotObjective::labels(std::span<const int64_t> counts) const {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(slots()), int64_t{0});
}

}  // namespace sf::train
