// SPDX-License-Identifier: Apache-2.0
// The objective of supervised fine-tuning: the mean negative log-likelihood over all labels of a window.
#pragma once
#include "train/objective.h"

namespace sf::train {

// Metrics: loss, acc (share of labels that are the model's first choice), and their denominator, labels.
class SftObjective : public Objective {
 public:
  size_t count_size() const override { return 1; }  // labels
  std::vector<int64_t> counts(const model::Tensors& micro_batch) const override;
  bool trains(std::span<const int64_t> counts) const override { return counts[0] > 0; }
  void weigh(model::Tensors& micro_batch, const Window& window) const override;
  std::string loss() const override { return "loss"; }
  std::string sums() const override { return "sums"; }
  size_t sum_size() const override { return 2; }
  std::vector<std::pair<std::string, double>> metrics(std::span<const double> sums,
                                                      const Window& window) const override;
};

}  // namespace sf::train
