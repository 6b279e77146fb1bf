// SPDX-License-Identifier: Apache-2.0
#include "train/dflash.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace sf::train {

double DflashObjective::weight(size_t slot) const {
  if (slot == 0) return 0;
  return decay_ > 0 ? std::exp(-static_cast<double>(slot - 1) / decay_) : 1;
}

double DflashObjective::denominator(std::span<const int64_t> counts) const {
  if (loss_ != model::SlotLoss::kPlain) return static_cast<double>(counts[slots()]);
  double sum = 0;
  for (size_t k = 0; k < slots(); ++k) sum += weight(k) * static_cast<double>(counts[k]);
  return sum;
}

std::vector<int64_t> DflashObjective::count_labels(const model::DflashBlocks& blocks,
                                                   const model::Tensors& micro_batch) const {
  std::vector<int64_t> counts(slots() + 1, 0);
  for (int64_t offset : blocks.label_offsets) ++counts[static_cast<size_t>(offset)];
  counts[slots()] = micro_batch.at("input_ids").size(0);
  return counts;
}

std::vector<int64_t> DflashObjective::counts(const model::Tensors& micro_batch) const {
  return count_labels(model::dflash_blocks(micro_batch, draft_), micro_batch);
}

bool DflashObjective::trains(std::span<const int64_t> counts) const {
  return std::any_of(counts.begin(), counts.end() - 1, [](int64_t count) { return count > 0; });
}

void DflashObjective::weigh(model::Tensors& micro_batch, const Window& window) const {
  at::Tensor weights = at::zeros({draft_.block}, at::kFloat);
  double sum = denominator(window.counts);
  for (size_t k = 1; k < slots() && sum > 0; ++k)
    weights.mutable_data_ptr<float>()[k] = static_cast<float>(weight(k) / sum);
  micro_batch["slot_weights"] = weights;
}

std::vector<std::pair<std::string, double>> DflashObjective::metrics(std::span<const double> sums,
                                                                     const Window& window) const {
  std::vector<std::pair<std::string, double>> named;
  double loss = 0, correct = 0, labels = 0;
  for (size_t k = 1; k < slots(); ++k) {
    double here = static_cast<double>(window.counts[k]);
    named.emplace_back("labels_" + std::to_string(k), here);
    if (here > 0) named.emplace_back("acc_" + std::to_string(k), sums[3 * k + 1] / here);
    correct += sums[3 * k + 1];
    loss += sums[3 * k + 2];
    labels += here;
  }
  if (labels > 0) {
    named.emplace_back("loss", loss);
    named.emplace_back("acc", correct / labels);
  }
  return named;
}

}  // namespace sf::train
