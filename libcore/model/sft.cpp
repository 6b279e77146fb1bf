// SPDX-License-Identifier: Apache-2.0
#include "model/sft.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <string>

#include "base/error.h"
#include "model/decoder.h"
#include "model/labelled.h"
#include "ops/linear_cross_entropy.h"
#include "tensor/device.h"

namespace sf::model {
namespace {

Tensors head(const arch::Decoder& decoder, const std::string& table, const Tensors& parameters, const Tensors& in) {
  const auto [states, wanted, places] = labelled_states(decoder, parameters, in);
  at::Tensor weight = at::full({wanted.size(0)}, in.at("label_weight").item<double>(), at::kFloat);
  ops::LinearCrossEntropy judged = ops::linear_cross_entropy(states, parameters.at(table), wanted, weight);
  at::Tensor sums = at::zeros({2}, at::kDouble), nll = tensor::on_host(judged.nll),
             top1 = tensor::on_host(judged.argmax);
  double* sum = sums.mutable_data_ptr<double>();
  for (int64_t i = 0; i < wanted.size(0); ++i) {
    sum[0] += static_cast<double>(nll.const_data_ptr<float>()[i]);
    sum[1] += top1.const_data_ptr<int64_t>()[i] == wanted.const_data_ptr<int64_t>()[i];
  }
  return {{"loss", judged.loss}, {"sums", sums}};
}

}  // namespace

std::vector<Segment> sft_segments(const arch::Decoder& decoder, std::span<const arch::Adapter> adapters) {
  std::vector<Segment> segments = decoder_segments(decoder, adapters);
  const arch::Segment described = arch::describe_training(decoder).segments.back();
  SF_ASSERT(described.parameters.size() >= 2);
  Segment& last = segments.back();
  last = {described.name, described.parameters, described.reads, described.writes, {}};
  last.forward = [decoder, table = described.parameters.back()](const Tensors& parameters, const Tensors& in) {
    return head(decoder, table, parameters, in);
  };
  return segments;
}

}  // namespace sf::model
