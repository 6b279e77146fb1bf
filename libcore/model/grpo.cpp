// SPDX-License-Identifier: Apache-2.0
#include "model/grpo.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <string>

#include "base/error.h"
#include "model/decoder.h"
#include "model/labelled.h"
#include "ops/linear_cross_entropy.h"
#include "tensor/device.h"

namespace sf::model {
namespace {

rl::Numbers numbers(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<double>(), static_cast<size_t>(tensor.numel())};
}

// Labels of each sequence.
rl::Ragged rows_of(const at::Tensor& labels, const at::Tensor& places) {
  std::vector<int64_t> lengths(static_cast<size_t>(labels.size(0)), 0);
  for (int64_t i = 0; i < places.numel(); ++i)
    ++lengths[static_cast<size_t>(places.const_data_ptr<int64_t>()[i] / labels.size(1))];
  return rl::Ragged(lengths);
}

rl::PolicyResult judge(const PolicyForm& form, const rl::Ragged& rows, const std::vector<double>& log_probs,
                       const Tensors& in) {
  const rl::Numbers shares = numbers(in.at("shares"));
  std::vector<uint8_t> mask;
  for (double share : shares) mask.push_back(share != 0);
  return rl::policy_loss(form.loss, form.clip,
                         {rows, mask, log_probs, numbers(in.at("old_log_probs")), numbers(in.at("advantages")), shares,
                          numbers(in.at("weights"))});
}

at::Tensor sums_of(const rl::PolicyResult& result) {
  at::Tensor sums = at::empty({5}, at::kDouble);
  const double values[] = {result.loss, result.tokens, result.clipped, result.clipped_lower, result.kl};
  std::copy(std::begin(values), std::end(values), sums.mutable_data_ptr<double>());
  return sums;
}

Tensors head(const arch::Decoder& decoder, const std::string& table, const PolicyForm& form, const Tensors& parameters,
             const Tensors& in) {
  const Labelled labelled = labelled_states(decoder, parameters, in);
  at::Tensor states = labelled.states;
  if (form.temperature != 1) states = states.div(form.temperature);
  const int64_t count = labelled.wanted.numel();
  at::Tensor log_probs;
  {
    c10::AutoGradMode nothing_learned(false);
    const ops::LinearCrossEntropy seen =
        ops::linear_cross_entropy(states, parameters.at(table), labelled.wanted, at::ones({count}, at::kFloat));
    log_probs = tensor::on_host(seen.nll).neg();
  }
  if (in.at("shares").numel() == 0)
    return {{"loss", at::zeros({}, at::kFloat)}, {"log_probs", log_probs}, {"sums", at::zeros({5}, at::kDouble)}};
  std::vector<double> wide(log_probs.const_data_ptr<float>(), log_probs.const_data_ptr<float>() + count);
  const rl::PolicyResult result = judge(form, rows_of(in.at("labels"), labelled.places), wide, in);
  // A loss with the policy loss's gradient: each token's surprise, times what that gradient is by its log-probability.
  at::Tensor slopes = at::empty({count}, at::kFloat);
  for (int64_t t = 0; t < count; ++t)
    slopes.mutable_data_ptr<float>()[t] = static_cast<float>(-result.gradient[static_cast<size_t>(t)]);
  ops::LinearCrossEntropy learned = ops::linear_cross_entropy(states, parameters.at(table), labelled.wanted, slopes);
  return {{"loss", learned.loss}, {"log_probs", log_probs}, {"sums", sums_of(result)}};
}

}  // namespace

std::vector<Segment> grpo_segments(const arch::Decoder& decoder, std::span<const arch::Adapter> adapters,
                                   const PolicyForm& form) {
  rl::check(form.clip);
  std::vector<Segment> segments = decoder_segments(decoder, adapters);
  const arch::Segment described = arch::describe_training(decoder).segments.back();
  SF_ASSERT(described.parameters.size() >= 2);
  Segment& last = segments.back();
  last = {described.name,
          described.parameters,
          {"hidden." + std::to_string(decoder.layers), "labels", "old_log_probs", "advantages", "shares", "weights"},
          {"loss", "log_probs", "sums"},
          {}};
  last.forward = [decoder, form, table = described.parameters.back()](const Tensors& parameters, const Tensors& in) {
    return head(decoder, table, form, parameters, in);
  };
  return segments;
}

}  // namespace sf::model
