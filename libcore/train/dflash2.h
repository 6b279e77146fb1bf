// SPDX-License-Identifier: Apache-2.0
// DFlash2's objective: DFlash's, and the selector's cross-entropy at the same weights (eagle_dflash 2b).
#pragma once
#include "model/dflash2.h"
#include "train/dflash.h"

namespace sf::train {

// What the selector's loss counts: nothing for warmup_ratio of the schedule, then rising to alpha over ramp_ratio of
// it.
struct SelectorShare {
  double alpha = 1, warmup_ratio = 0, ramp_ratio = 0;
  double at(int64_t step, int64_t total_steps) const;
};

// Metrics: DFlash's; of all labels unary_loss, topk_recall (is a candidate) and selector_acc
// (is its choice); of the candidates selector_loss; over blocks oracle_accept_len and selector_accept_len, with the
// gold token before; selector_alpha.
class Dflash2Objective : public DflashObjective {
 public:
  Dflash2Objective(const arch::Dflash2& draft, double decay, model::SlotLoss loss, SelectorShare share)
      : DflashObjective(draft, decay, loss), share_(share) {}

  size_t count_size() const override { return DflashObjective::count_size() + 1; }  // and blocks that hold a label
  std::vector<int64_t> counts(const model::Tensors& micro_batch) const override;
  bool trains(std::span<const int64_t> counts) const override;
  void weigh(model::Tensors& micro_batch, const Window& window) const override;
  size_t sum_size() const override { return static_cast<size_t>(model::kDflash2Sums) * slots(); }
  std::vector<std::pair<std::string, double>> metrics(std::span<const double> sums,
                                                      const Window& window) const override;

 private:
  SelectorShare share_;
};

}  // namespace sf::train
