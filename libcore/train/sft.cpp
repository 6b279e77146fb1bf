// SPDX-License-Identifier: Apache-2.0
#include "train/sft.h"

#include <ATen/ops/scalar_tensor.h>

namespace sf::train {

std::vector<int64_t> SftObjective::counts(const model::Tensors& micro_batch) const {
  return {micro_batch.at("labels").ge(0).sum().item<int64_t>()};
}

void SftObjective::weigh(model::Tensors& micro_batch, const Window& window) const {
  micro_batch["label_weight"] = at::scalar_tensor(1.0 / static_cast<double>(window.counts[0]), at::kFloat);
}

std::vector<std::pair<std::string, double>> SftObjective::metrics(std::span<const double> sums,
                                                                  const Window& window) const {
  const double labels = static_cast<double>(window.counts[0]);
  return {{"loss", sums[0] / labels}, {"acc", sums[1] / labels}, {"labels", labels}};
}

}  // namespace sf::train
