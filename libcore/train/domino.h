// SPDX-License-Identifier: Apache-2.0
// Domino's objective (eagle_dflash 4.1): from the uncorrected logits to the corrected ones over the run.
#pragma once
#include "model/domino.h"
#include "train/slots.h"

namespace sf::train {

// The uncorrected logits' share of the loss: start at the first step, falling to 0 over decay_ratio of the schedule.
struct BaseShare {
  double start = 1, decay_ratio = 0.5;
  double at(int64_t step, int64_t total_steps) const;
};

// Slot k weighs exp(-(k - first) / gamma), first the first slot with a label. Quirk: each micro-batch over its own
// weights plus 1e-6. Metrics: loss, final_loss, base_loss over the weights; acc, base_acc over the labels; accept_len
// and base_accept_len over the blocks (labels before the first wrong one, plus 1); lambda_base; by slot acc_k,
// labels_k.
class DominoObjective : public SlotObjective {
 public:
  DominoObjective(const arch::Domino& draft, BaseShare share, double gamma, bool reference_quirks)
      : SlotObjective({draft, model::domino_labels(draft), gamma, reference_quirks, 1e-6}), share_(share) {}

  void weigh(model::Tensors& micro_batch, const Window& window) const override;
  size_t sum_size() const override { return static_cast<size_t>(model::kDominoSums) * slots(); }
  std::vector<std::pair<std::string, double>> metrics(std::span<const double> sums,
                                                      const Window& window) const override;

 private:
  BaseShare share_;
};

}  // namespace sf::train
