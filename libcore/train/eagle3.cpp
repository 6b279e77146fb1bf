// SPDX-License-Identifier: Apache-2.0
#include "train/eagle3.h"

#include <ATen/ops/empty.h>

#include <cmath>

#include "base/fault.h"

namespace sf::train {

Eagle3Objective::Eagle3Objective(model::Eagle3Vocabulary vocabulary, model::Eagle3Options options)
    : vocabulary_(std::move(vocabulary)), options_(options) {}

std::vector<int64_t> Eagle3Objective::counts(const model::Tensors& micro_batch) const {
  model::Eagle3Labels labels = model::eagle3_labels(micro_batch, vocabulary_, options_);
  std::vector<int64_t> counts = labels.trained_count;
  counts.insert(counts.end(), labels.supervised_count.begin(), labels.supervised_count.end());
  counts.push_back(micro_batch.at("input_ids").numel());
  counts.push_back(1);
  return counts;
}

// What the reference divides a step's numerator by: padding too where a cross-entropy is in it.
int64_t Eagle3Objective::cells(std::span<const int64_t> counts, size_t k) const {
  return options_.lk.asks_cross_entropy() ? counts[2 * unroll()] : counts[k];
}

void Eagle3Objective::weigh(model::Tensors& micro_batch, const Window& window) const {
  at::Tensor weights = at::empty({options_.unroll}, at::kFloat);
  std::vector<int64_t> mine;
  if (options_.reference_quirks) mine = counts(micro_batch);
  for (size_t k = 0; k < unroll(); ++k) {
    // The reference averages the micro-batches' means; ours is one mean over the window's trained labels.
    double divisor = static_cast<double>(window.counts[k]);
    if (options_.reference_quirks) divisor = static_cast<double>(cells(mine, k) * window.counts[2 * unroll() + 1]);
    double weight = divisor > 0 ? std::pow(model::kStepDecay, static_cast<double>(k)) / divisor : 0;
    weights.mutable_data_ptr<float>()[k] = static_cast<float>(weight);
  }
  micro_batch["step_weights"] = weights;
}

std::vector<std::pair<std::string, double>> Eagle3Objective::metrics(std::span<const double> sums,
                                                                     const Window& window) const {
  std::vector<std::pair<std::string, double>> named;
  double loss = 0, correct = 0, supervised = 0, rates = 0;
  size_t steps_with_rate = 0;
  for (size_t k = 0; k < unroll(); ++k) {
    std::string step = "_" + std::to_string(k);
    double trained = static_cast<double>(window.counts[k]), in_mask = static_cast<double>(window.counts[unroll() + k]);
    double divisor = options_.reference_quirks ? static_cast<double>(cells(window.counts, k)) : trained;
    named.emplace_back("trained" + step, trained);
    named.emplace_back("supervised" + step, in_mask);
    correct += sums[3 * k + 1];
    supervised += in_mask;
    if (in_mask > 0) named.emplace_back("acc" + step, sums[3 * k + 1] / in_mask);
    if (trained == 0) continue;
    named.emplace_back("ploss" + step, sums[3 * k] / divisor);
    named.emplace_back("acceptance_rate" + step, sums[3 * k + 2] / trained);
    loss += std::pow(model::kStepDecay, static_cast<double>(k)) * sums[3 * k] / divisor;
    rates += sums[3 * k + 2] / trained;
    ++steps_with_rate;
  }
  named.emplace_back("loss", loss);
  if (supervised > 0) named.emplace_back("acc", correct / supervised);
  if (steps_with_rate > 0) named.emplace_back("acceptance_rate", rates / static_cast<double>(steps_with_rate));
  return named;
}

}  // namespace sf::train
