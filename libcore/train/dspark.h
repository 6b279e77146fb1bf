// SPDX-License-Identifier: Apache-2.0
// DSpark's objective (eagle_dflash 3.2): cross-entropy, L1 and confidence over one sum of weights a window.
#pragma once
#include "model/dspark.h"
#include "train/slots.h"

namespace sf::train {

// Slot k weighs exp(-k / gamma). Quirk: each micro-batch over its own weights. Metrics: loss; over the weights ce_loss,
// l1_loss, confidence_loss, confidence_abs_error; over the labels acc, teacher_agreement, teacher_top1_prob,
// draft_top1_prob; by slot ce_position_k, acc_k with labels_k; tau_probabilistic over the blocks (1 + the expected run
// of accepted tokens, at temperature 1).
class DsparkObjective : public SlotObjective {
 public:
  DsparkObjective(const arch::Dspark& draft, const model::DsparkOptions& options, double gamma, bool reference_quirks)
      : SlotObjective({draft, model::kDsparkLabels, gamma, reference_quirks, 0}), teacher_(options.asks_teacher()) {}

  size_t sum_size() const override { return static_cast<size_t>(model::kDsparkSums) * slots(); }
  std::vector<std::pair<std::string, double>> metrics(std::span<const double> sums,
                                                      const Window& window) const override;

 private:
  bool teacher_;
};

}  // namespace sf::train
