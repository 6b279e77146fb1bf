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

struct Judged {
  rl::PolicyResult policy;
  double entropy = 0, kl = 0;
};

Judged judge(const PolicyForm& form, const ops::LinearCrossEntropy& seen, const Tensors& in, const rl::Ragged& rows) {
  const at::Tensor nll = tensor::on_host(seen.nll), entropy = tensor::on_host(seen.entropy);
  const rl::Numbers shares = numbers(in.at("shares"));
  std::vector<uint8_t> mask;
  for (double share : shares) mask.push_back(share != 0);
  std::vector<double> log_probs;
  for (size_t t = 0; t < shares.size(); ++t) log_probs.push_back(-double{nll.const_data_ptr<float>()[t]});
  rl::Numbers old = numbers(in.at("old_log_probs"));
  if (old.empty()) old = log_probs;
  const rl::PolicyTokens tokens{
      rows, mask, log_probs, old, numbers(in.at("advantages")), shares, numbers(in.at("weights"))};
  Judged judged{.policy = rl::policy_loss(form.loss, form.clip, tokens)};
  for (size_t t = 0; t < mask.size(); ++t)
    if (mask[t]) judged.entropy += entropy.const_data_ptr<float>()[t];
  if (form.kl) judged.kl = rl::add_kl(*form.kl, tokens, numbers(in.at("reference")), judged.policy);
  return judged;
}

constexpr int64_t kSums = 7;

at::Tensor sums_of(const Judged& judged) {
  const rl::PolicyResult& result = judged.policy;
  at::Tensor sums = at::empty({kSums}, at::kDouble);
  const double values[] = {result.loss, result.tokens,  result.clipped, result.clipped_lower,
                           result.kl,   judged.entropy, judged.kl};
  static_assert(std::size(values) == kSums);
  std::copy(std::begin(values), std::end(values), sums.mutable_data_ptr<double>());
  return sums;
}

Tensors head(const arch::Decoder& decoder, const std::string& table, const PolicyForm& form, const Tensors& parameters,
             const Tensors& in) {
  const Labelled labelled = labelled_states(decoder, parameters, in);
  at::Tensor states = labelled.states;
  if (form.temperature != 1) states = states.div(form.temperature);
  const int64_t count = labelled.wanted.numel();
  ops::LinearCrossEntropy seen;
  {
    c10::AutoGradMode nothing_learned(false);
    seen = ops::linear_cross_entropy(states, parameters.at(table), labelled.wanted, at::ones({count}, at::kFloat));
  }
  const at::Tensor log_probs = tensor::on_host(seen.nll).neg();
  if (in.at("shares").numel() == 0)
    return {{"loss", at::zeros({}, at::kFloat)}, {"log_probs", log_probs}, {"sums", at::zeros({kSums}, at::kDouble)}};
  const Judged judged = judge(form, seen, in, rows_of(in.at("labels"), labelled.places));
  // A loss with the policy loss's gradient: each token's surprise, times what that gradient is by its log-probability.
  at::Tensor slopes = at::empty({count}, at::kFloat);
  for (int64_t t = 0; t < count; ++t)
    slopes.mutable_data_ptr<float>()[t] = static_cast<float>(-judged.policy.gradient[static_cast<size_t>(t)]);
  ops::LinearCrossEntropy learned = ops::linear_cross_entropy(states, parameters.at(table), labelled.wanted, slopes);
  return {{"loss", learned.loss}, {"log_probs", log_probs}, {"sums", sums_of(judged)}};
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
  if (form.kl) {
    last.reads.emplace_back("reference");
    for (Segment& segment : segments)
      if (segment.name.starts_with("layers.")) segment.reads.emplace_back("adapters_off");
  }
  last.forward = [decoder, form, table = described.parameters.back()](const Tensors& parameters, const Tensors& in) {
    return head(decoder, table, form, parameters, in);
  };
  return segments;
}

}  // namespace sf::model
