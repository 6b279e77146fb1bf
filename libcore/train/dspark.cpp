// SPDX-License-Identifier: Apache-2.0
#include "train/dspark.h"

namespace sf::train {

std::vector<std::pair<std::string, double>> DsparkObjective::metrics(std::span<const double> sums,
                                                                     const Window& window) const {
  using namespace model;
  std::vector<std::pair<std::string, double>> named;
  double weights = denominator(window.counts), labels = static_cast<double>(this->labels(window.counts));
  auto all = [&](DsparkSum column, bool weighted) { return total(sums, kDsparkSums, column, weighted); };
  named.emplace_back("loss", all(kLossPart, false));
  named.emplace_back("acc", all(kCorrect, false) / labels);
  named.emplace_back("labels", labels);
  named.emplace_back("ce_loss", all(kCe, true) / weights);
  named.emplace_back("l1_loss", all(kL1, true) / weights);
  named.emplace_back("confidence_loss", all(kConfidence, true) / weights);
  named.emplace_back("confidence_abs_error", all(kDistance, true) / weights);
  for (size_t k = 0; k < slots(); ++k) {
    double here = static_cast<double>(window.counts[k]);
    named.emplace_back("labels_" + std::to_string(k), here);
    if (here == 0) continue;
    named.emplace_back("ce_position_" + std::to_string(k), sums[kDsparkSums * k + kCe] / here);
    named.emplace_back("acc_" + std::to_string(k), sums[kDsparkSums * k + kCorrect] / here);
  }
  if (!teacher_) return named;
  named.emplace_back("teacher_agreement", all(kAgreement, false) / labels);
  named.emplace_back("teacher_top1_prob", all(kTeacherTop, false) / labels);
  named.emplace_back("draft_top1_prob", all(kDraftTop, false) / labels);
  named.emplace_back("tau_probabilistic", 1 + all(kTau, false) / behind(window.counts, kBlocks));
  return named;
}

}  // namespace sf::train
