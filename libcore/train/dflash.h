// SPDX-License-Identifier: Apache-2.0
// DFlash's objective: one weighted mean of the slots' cross-entropies over the whole window (eagle_dflash 2.5, 7.3).
#pragma once
#include "model/dflash.h"
#include "train/objective.h"

namespace sf::train {

// Slot k > 0 has weight 1, or exp(-(k - 1) / decay) if decay (loss_decay_gamma) is positive.
// Metrics: loss, acc over all slots, and by slot acc_k with its denominator labels_k.
class DflashObjective : public Objective {
 public:
  DflashObjective(arch::Dflash draft, double decay = 0) : draft_(std::move(draft)), decay_(decay) {}

  size_t count_size() const override { return slots(); }  // labels by slot
  std::vector<int64_t> counts(const model::Tensors& micro_batch) const override;
  bool trains(std::span<const int64_t> counts) const override;
  void weigh(model::Tensors& micro_batch, std::span<const int64_t> window_counts) const override;
  std::string loss() const override { return "loss"; }
  std::string sums() const override { return "slot_sums"; }
  size_t sum_size() const override { return 2 * slots(); }
  std::vector<std::pair<std::string, double>> metrics(std::span<const double> sums,
                                                      std::span<const int64_t> counts) const override;

 private:
  size_t slots() const { return static_cast<size_t>(draft_.block); }
  double weight(size_t slot) const;
  double denominator(std::span<const int64_t> counts) const;
  arch::Dflash draft_;
  double decay_;
};

}  // namespace sf::train
