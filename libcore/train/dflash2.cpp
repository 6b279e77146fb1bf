// SPDX-License-Identifier: Apache-2.0
#include "train/dflash2.h"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>

namespace sf::train {

double SelectorShare::at(int64_t step, int64_t total_steps) const {
  double done = static_cast<double>(step) - warmup_ratio * static_cast<double>(total_steps);
  if (done < 0) return 0;
  double span = ramp_ratio * static_cast<double>(total_steps);
  return span > 0 ? alpha * std::min(done / span, 1.0) : alpha;
}

std::vector<int64_t> Dflash2Objective::counts(const model::Tensors& micro_batch) const {
  model::DflashBlocks blocks = model::dflash_blocks(micro_batch, draft());
  std::vector<int64_t> counts = count_labels(blocks, micro_batch);
  int64_t last = -1, held = 0;
  for (int64_t slot : blocks.label_slots) {
    held += slot / draft().block != last;
    last = slot / draft().block;
  }
  counts.push_back(held);
  return counts;
}

bool Dflash2Objective::trains(std::span<const int64_t> counts) const {
  return counts.back() > 0;
}

void Dflash2Objective::weigh(model::Tensors& micro_batch, const Window& window) const {
  DflashObjective::weigh(micro_batch, window);
  micro_batch["selector_share"] = at::scalar_tensor(share_.at(window.step, window.total_steps), at::kFloat);
}

std::vector<std::pair<std::string, double>> Dflash2Objective::metrics(std::span<const double> sums,
                                                                      const Window& window) const {
  using namespace model;
  std::vector<std::pair<std::string, double>> named;
  double labels = 0, total[kDflash2Sums] = {};
  for (size_t k = 1; k < slots(); ++k) {
    auto here = static_cast<double>(window.counts[k]);
    named.emplace_back("labels_" + std::to_string(k), here);
    labels += here;
    if (here > 0) named.emplace_back("acc_" + std::to_string(k), sums[kDflash2Sums * k + kUnaryRight] / here);
    if (here > 0) named.emplace_back("selector_acc_" + std::to_string(k), sums[kDflash2Sums * k + kChosen] / here);
    for (size_t c = 0; c < kDflash2Sums; ++c) total[c] += sums[kDflash2Sums * k + c];
  }
  auto blocks = static_cast<double>(window.counts.back());
  named.emplace_back("loss", total[kDflash2Loss]);
  named.emplace_back("acc", total[kUnaryRight] / labels);
  named.emplace_back("unary_loss", total[kUnary] / labels);
  named.emplace_back("topk_recall", total[kPresent] / labels);
  named.emplace_back("selector_acc", total[kChosen] / labels);
  if (total[kPresent] > 0) named.emplace_back("selector_loss", total[kSelector] / total[kPresent]);
  named.emplace_back("oracle_accept_len", 1 + total[kOracleReached] / blocks);
  named.emplace_back("selector_accept_len", 1 + total[kChosenReached] / blocks);
  named.emplace_back("selector_alpha", share_.at(window.step, window.total_steps));
  return named;
}

}  // namespace sf::train
