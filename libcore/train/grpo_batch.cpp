// SPDX-License-Identifier: Apache-2.0
#include "train/grpo_batch.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace sf::train {
namespace {

int64_t tokens_of(const Response& response) {
  return std::ssize(response.prompt) + std::ssize(response.answer);
}

// ids, positions, labels: the answer's tokens, each at the place before it.
model::Tensors text_of(std::span<const Response> responses, const rl::Part& part) {
  int64_t width = 0;
  for (int64_t s : part) width = std::max(width, tokens_of(responses[static_cast<size_t>(s)]));
  at::Tensor ids = at::zeros({std::ssize(part), width}, at::kLong), labels = at::full_like(ids, -1);
  for (size_t b = 0; b < part.size(); ++b) {
    const Response& response = responses[static_cast<size_t>(part[b])];
    int64_t* id = ids.mutable_data_ptr<int64_t>() + static_cast<int64_t>(b) * width;
    std::copy(response.answer.begin(), response.answer.end(),
              std::copy(response.prompt.begin(), response.prompt.end(), id));
    std::copy(response.answer.begin(), response.answer.end(),
              labels.mutable_data_ptr<int64_t>() + static_cast<int64_t>(b) * width + std::ssize(response.prompt) - 1);
  }
  at::Tensor positions = at::arange(width, at::kLong).expand({std::ssize(part), width}).contiguous();
  return {{"ids", ids}, {"positions", positions}, {"labels", labels}};
}

at::Tensor tensor_of(const std::vector<double>& values) {
  at::Tensor result = at::empty({std::ssize(values)}, at::kDouble);
  std::ranges::copy(values, result.mutable_data_ptr<double>());
  return result;
}

}  // namespace

model::Tensors scoring_batch(const Response& response, bool adapted) {
  model::Tensors batch = text_of(std::span(&response, 1), {0});
  for (const char* name : {"old_log_probs", "advantages", "shares", "weights", "reference"})
    batch[name] = tensor_of({});
  batch["adapters_off"] = at::full({1}, adapted ? 0 : 1, at::kLong);
  return batch;
}

model::Tensors learning_batch(std::span<const Response> responses, const rl::Part& part, const TokenNumbers& numbers) {
  model::Tensors batch = text_of(responses, part);
  auto put = [&](const char* name, rl::Numbers all) {
    std::vector<double> own;
    if (!all.empty())
      for (int64_t s : part) std::ranges::copy(numbers.rows.of(all, s), std::back_inserter(own));
    batch[name] = tensor_of(own);
  };
  put("old_log_probs", numbers.old_log_probs);
  put("advantages", numbers.advantages);
  put("shares", numbers.shares);
  put("weights", numbers.weights);
  put("reference", numbers.reference);
  batch["adapters_off"] = at::zeros({1}, at::kLong);
  return batch;
}

}  // namespace sf::train
