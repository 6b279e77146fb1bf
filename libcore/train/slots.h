// SPDX-License-Identifier: Apache-2.0
// What the objectives of drafts of blocks share: labels by slot, weights by slot, one divisor a window.
#pragma once
#include "arch/dflash.h"
#include "model/block_backbone.h"
#include "train/objective.h"

namespace sf::train {

class SlotObjective : public Objective {
 public:
  size_t count_size() const override { return slots() + 2; }  // labels by slot, blocks that hold one, micro-batches
  std::vector<int64_t> counts(const model::Tensors& micro_batch) const override;
  bool trains(std::span<const int64_t> counts) const override { return counts[slots()] > 0; }
  // slot_weights: of slot k exp(-(k - first) / gamma), or 1 without gamma, over the window's sum of these; under the
  // quirk over the micro-batch's own (plus `added`) times the micro-batches of the window.
  void weigh(model::Tensors& micro_batch, const Window& window) const override;
  std::string loss() const override { return "loss"; }
  std::string sums() const override { return "slot_sums"; }

 protected:
  struct Form {
    arch::Dflash blocks;
    model::BlockLabels labels;
    double gamma = 0;
    bool reference_quirks = false;
    double added = 0;
  };
  explicit SlotObjective(Form form) : form_(std::move(form)) {}
  size_t slots() const { return static_cast<size_t>(form_.blocks.block); }
  double weight(size_t slot) const;
  double denominator(std::span<const int64_t> counts) const;  // sum of weights
  // Sum over slots of one column of `sums` (of `columns`); weighted: times the slot's weight.
  double total(std::span<const double> sums, size_t columns, size_t column, bool weighted = false) const;
  int64_t labels(std::span<const int64_t> counts) const;
  static constexpr size_t kBlocks = 0, kMicroBatches = 1;  // behind the slots
  double behind(std::span<const int64_t> counts, size_t which) const {
    return static_cast<double>(counts[slots() + which]);
  }

 private:
  Form form_;
};

}  // namespace sf::train
