// SPDX-License-Identifier: Apache-2.0
// EAGLE3's objective: each unrolled step's numerator over its trained labels of the whole window (eagle_dflash 1.5).
#pragma once
#include "model/eagle3.h"
#include "train/objective.h"

namespace sf::train {

// Metrics: loss; and per unrolled step i ploss_i, acc_i, acceptance_rate_i with their denominators trained_i and
// supervised_i; acc over all steps, acceptance_rate as the mean of the steps'. A rate without a denominator is left
// out.
class Eagle3Objective : public Objective {
 public:
  Eagle3Objective(model::Eagle3Vocabulary vocabulary, model::Eagle3Options options);

  // Trained [T], supervised [T], cells (B * S), micro-batches with rows.
  size_t count_size() const override { return 2 * unroll() + 2; }
  std::vector<int64_t> counts(const model::Tensors& micro_batch) const override;
  bool trains(std::span<const int64_t> counts) const override { return counts[0] > 0; }
  void weigh(model::Tensors& micro_batch, const Window& window) const override;
  std::string loss() const override { return "loss"; }
  std::string sums() const override { return "step_sums"; }
  size_t sum_size() const override { return 3 * unroll(); }
  std::vector<std::pair<std::string, double>> metrics(std::span<const double> sums,
                                                      const Window& window) const override;

 private:
  int64_t cells(std::span<const int64_t> counts, size_t k) const;
  size_t unroll() const { return static_cast<size_t>(options_.unroll); }
  model::Eagle3Vocabulary vocabulary_;
  model::Eagle3Options options_;
};

}  // namespace sf::train
