// SPDX-License-Identifier: Apache-2.0
// DFlash's objective: one weighted mean of the slots' cross-entropies over the whole window (eagle_dflash 2.5, 7.3).
#pragma once
#include "model/dflash.h"
#include "train/objective.h"

namespace sf::train {

// Slot k > 0 has weight 1, or exp(-(k - 1) / decay) if decay (loss_decay_gamma) is positive; the sum is divided by the
// window's weights. D-PACE's weights depend on the model: its sum is divided by the window's rows, and knows no decay.
// Metrics: loss, acc over all slots, and by slot acc_k with its denominator labels_k.
class DflashObjective : public Objective {
 public:
  DflashObjective(arch::Dflash draft, double decay = 0, model::SlotLoss loss = model::SlotLoss::kPlain)
      : draft_(std::move(draft)), decay_(loss == model::SlotLoss::kPlain ? decay : 0), loss_(loss) {}

  size_t count_size() const override { return slots() + 1; }  // labels by slot, rows
  std::vector<int64_t> counts(const model::Tensors& micro_batch) const override;
  bool trains(std::span<const int64_t> counts) const override;
  void weigh(model::Tensors& micro_batch, const Window& window) const override;
  std::string loss() const override { return "loss"; }
  std::string sums() const override { return "slot_sums"; }
  size_t sum_size() const override { return 3 * slots(); }
  std::vector<std::pair<std::string, double>> metrics(std::span<const double> sums,
                                                      const Window& window) const override;
  double denominator(std::span<const int64_t> counts) const;

 protected:
  const arch::Dflash& draft() const { return draft_; }
  size_t slots() const { return static_cast<size_t>(draft_.block); }
  // Labels by slot, rows.
  std::vector<int64_t> count_labels(const model::DflashBlocks& blocks, const model::Tensors& micro_batch) const;

 private:
  double weight(size_t slot) const;
  arch::Dflash draft_;
  double decay_;
  model::SlotLoss loss_;
};

}  // namespace sf::train
