// SPDX-License-Identifier: Apache-2.0
// P-EAGLE's objective: one mean of the rows' cross-entropies over the window's trained labels (eagle_dflash 4.2).
#pragma once
#include "model/peagle.h"
#include "train/objective.h"

namespace sf::train {

// Quirk: the mean of the micro-batches' means. Metrics: loss, acc, acceptance_rate; by depth ploss_k, acc_k,
// acceptance_rate_k with their denominator trained_k.
class PeagleObjective : public Objective {
 public:
  PeagleObjective(arch::Peagle draft, model::Eagle3Vocabulary vocabulary, model::PeagleOptions options)
      : draft_(std::move(draft)), vocabulary_(std::move(vocabulary)), options_(options) {}

  size_t count_size() const override { return depths() + 1; }  // trained labels by depth, micro-batches
  std::vector<int64_t> counts(const model::Tensors& micro_batch) const override;
  bool trains(std::span<const int64_t> counts) const override { return trained(counts) > 0; }
  void weigh(model::Tensors& micro_batch, const Window& window) const override;
  std::string loss() const override { return "loss"; }
  std::string sums() const override { return "depth_sums"; }
  size_t sum_size() const override { return 3 * depths(); }
  std::vector<std::pair<std::string, double>> metrics(std::span<const double> sums,
                                                      const Window& window) const override;

 private:
  size_t depths() const { return static_cast<size_t>(options_.depths); }
  int64_t trained(std::span<const int64_t> counts) const;
  arch::Peagle draft_;
  model::Eagle3Vocabulary vocabulary_;
  model::PeagleOptions options_;
};

}  // namespace sf::train
