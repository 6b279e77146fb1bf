// SPDX-License-Identifier: Apache-2.0
#include "train/domino.h"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cmath>

namespace sf::train {

double BaseShare::at(int64_t step, int64_t total_steps) const {
  double span = std::max(1.0, std::floor(static_cast<double>(total_steps) * decay_ratio));
  return std::clamp(start * (1 - std::min(static_cast<double>(step) / span, 1.0)), 0.0, 1.0);
}

void DominoObjective::weigh(model::Tensors& micro_batch, const Window& window) const {
  SlotObjective::weigh(micro_batch, window);
  micro_batch["base_share"] = at::scalar_tensor(share_.at(window.step, window.total_steps), at::kFloat);
}

std::vector<std::pair<std::string, double>> DominoObjective::metrics(std::span<const double> sums,
                                                                     const Window& window) const {
  using namespace model;
  std::vector<std::pair<std::string, double>> named;
  double weights = denominator(window.counts), labels = static_cast<double>(this->labels(window.counts));
  double blocks = behind(window.counts, kBlocks);
  auto all = [&](DominoSum column, bool weighted) { return total(sums, kDominoSums, column, weighted); };
  named.emplace_back("loss", all(kDominoLoss, false));
  named.emplace_back("final_loss", all(kFinal, true) / weights);
  named.emplace_back("base_loss", all(kBase, true) / weights);
  named.emplace_back("acc", all(kFinalRight, false) / labels);
  named.emplace_back("base_acc", all(kBaseRight, false) / labels);
  named.emplace_back("labels", labels);
  named.emplace_back("accept_len", 1 + all(kFinalReached, false) / blocks);
  named.emplace_back("base_accept_len", 1 + all(kBaseReached, false) / blocks);
  named.emplace_back("lambda_base", share_.at(window.step, window.total_steps));
  for (size_t k = 0; k < slots(); ++k) {
    double here = static_cast<double>(window.counts[k]);
    named.emplace_back("labels_" + std::to_string(k), here);
    if (here > 0) named.emplace_back("acc_" + std::to_string(k), sums[kDominoSums * k + kFinalRight] / here);
  }
  return named;
}

}  // namespace sf::train
