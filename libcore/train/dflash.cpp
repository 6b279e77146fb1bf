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
  double sum = 0;
  for (size_t k = 0; k < slots(); ++k) sum += weight(k) * static_cast<double>(counts[k]);
  return sum;
}

std::vector<int64_t> DflashObjective::counts(const model::Tensors& micro_batch) const {
  std::vector<int64_t> counts(slots(), 0);
  for (int64_t offset : model::dflash_blocks(micro_batch, draft_).label_offsets) ++counts[static_cast<size_t>(offset)];
  return counts;
}

bool DflashObjective::trains(std::span<const int64_t> counts) const {
  return std::any_of(counts.begin(), counts.end(), [](int64_t count) { return count > 0; });
}

void DflashObjective::weigh(model::Tensors& micro_batch, std::span<const int64_t> window_counts) const {
  at::Tensor weights = at::zeros({draft_.block}, at::kFloat);
  double sum = denominator(window_counts);
  for (size_t k = 1; k < slots() && sum > 0; ++k)
    weights.mutable_data_ptr<float>()[k] = static_cast<float>(weight(k) / sum);
  micro_batch["slot_weights"] = weights;
}

std::vector<std::pair<std::string, double>> DflashObjective::metrics(std::span<const double> sums,
                                                                     std::span<const int64_t> counts) const {
  std::vector<std::pair<std::string, double>> named;
  double loss = 0, correct = 0, labels = 0;
  for (size_t k = 1; k < slots(); ++k) {
    double here = static_cast<double>(counts[k]);
    named.emplace_back("labels_" + std::to_string(k), here);
    if (here > 0) named.emplace_back("acc_" + std::to_string(k), sums[2 * k + 1] / here);
    loss += weight(k) * sums[2 * k];
    correct += sums[2 * k + 1];
    labels += here;
  }
  if (labels > 0) {
    named.emplace_back("loss", loss / denominator(counts));
    named.emplace_back("acc", correct / labels);
  }
  return named;
}

}  // namespace sf::train
