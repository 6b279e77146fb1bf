// SPDX-License-Identifier: Apache-2.0
#include "train/peagle.h"

#include <ATen/ops/scalar_tensor.h>

#include <numeric>

namespace sf::train {

int64_t PeagleObjective::trained(std::span<const int64_t> counts) const {
  return std::accumulate(counts.begin(), counts.begin() + options_.depths, int64_t{0});
}

std::vector<int64_t> PeagleObjective::counts(const model::Tensors& micro_batch) const {
  std::vector<int64_t> counts(count_size(), 0);
  for (int64_t depth : model::peagle_rows(micro_batch, draft_, vocabulary_, options_).label_depths)
    ++counts[static_cast<size_t>(depth)];
  counts[depths()] = 1;
  return counts;
}

void PeagleObjective::weigh(model::Tensors& micro_batch, const Window& window) const {
  auto divisor = static_cast<double>(trained(window.counts));
  if (options_.reference_quirks) divisor = static_cast<double>(trained(counts(micro_batch)) * window.counts[depths()]);
  micro_batch["label_weight"] = at::scalar_tensor(divisor > 0 ? 1 / divisor : 0, at::kFloat);
}

std::vector<std::pair<std::string, double>> PeagleObjective::metrics(std::span<const double> sums,
                                                                     const Window& window) const {
  std::vector<std::pair<std::string, double>> named;
  double all = static_cast<double>(trained(window.counts)), loss = 0, right = 0, rate = 0;
  for (size_t k = 0; k < depths(); ++k) {
    std::string depth = "_" + std::to_string(k);
    auto here = static_cast<double>(window.counts[k]);
    named.emplace_back("trained" + depth, here);
    loss += sums[3 * k], right += sums[3 * k + 1], rate += sums[3 * k + 2];
    if (here == 0) continue;
    named.emplace_back("ploss" + depth, sums[3 * k] / here);
    named.emplace_back("acc" + depth, sums[3 * k + 1] / here);
    named.emplace_back("acceptance_rate" + depth, sums[3 * k + 2] / here);
  }
  named.emplace_back("loss", loss / all);
  named.emplace_back("acc", right / all);
  named.emplace_back("acceptance_rate", rate / all);
  return named;
}

}  // namespace sf::train
