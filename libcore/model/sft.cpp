// SPDX-License-Identifier: Apache-2.0
#include "model/sft.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <string>

#include "base/error.h"
#include "model/decoder.h"
#include "ops/linear_cross_entropy.h"
#include "ops/norm.h"
#include "tensor/device.h"

namespace sf::model {
namespace {

// Places of [B * S] that have a label, ascending.
at::Tensor labelled(const at::Tensor& labels) {
  const int64_t* label = labels.const_data_ptr<int64_t>();
  std::vector<int64_t> places;
  for (int64_t i = 0; i < labels.numel(); ++i)
    if (label[i] >= 0) places.push_back(i);
  SF_CHECK(!places.empty(), Exit::kSoftware, "a micro-batch without a label reached the head");
  at::Tensor index = at::empty({std::ssize(places)}, at::kLong);
  std::copy(places.begin(), places.end(), index.mutable_data_ptr<int64_t>());
  return index;
}

Tensors head(const arch::Decoder& decoder, const std::string& table, const Tensors& parameters, const Tensors& in) {
  at::Tensor labels = in.at("labels").to(at::kLong).contiguous();
  at::Tensor rows = labelled(labels);
  const at::Tensor& hidden = in.at("hidden." + std::to_string(decoder.layers));
  at::Tensor flat = hidden.view({-1, hidden.size(-1)});
  if (rows.size(0) != flat.size(0)) flat = tensor::select(flat, 0, rows);
  at::Tensor normed = ops::rms_norm(flat, parameters.at("model.norm.weight"), decoder.rms_eps);
  at::Tensor wanted = labels.view({-1}).index_select(0, rows);
  at::Tensor weight = at::full({rows.size(0)}, in.at("label_weight").item<double>(), at::kFloat);
  ops::LinearCrossEntropy judged = ops::linear_cross_entropy(normed, parameters.at(table), wanted, weight);
  at::Tensor sums = at::zeros({2}, at::kDouble), nll = tensor::on_host(judged.nll),
             top1 = tensor::on_host(judged.argmax);
  double* sum = sums.mutable_data_ptr<double>();
  for (int64_t i = 0; i < rows.size(0); ++i) {
    sum[0] += static_cast<double>(nll.const_data_ptr<float>()[i]);
    sum[1] += top1.const_data_ptr<int64_t>()[i] == wanted.const_data_ptr<int64_t>()[i];
  }
  return {{"loss", judged.loss}, {"sums", sums}};
}

}  // namespace

std::vector<Segment> sft_segments(const arch::Decoder& decoder, std::span<const arch::Adapter> adapters) {
  std::vector<Segment> segments = decoder_segments(decoder, adapters);
  const arch::Segment described = arch::describe_training(decoder).segments.back();
  SF_ASSERT(described.parameters.size() == 2);
  Segment& last = segments.back();
  last = {described.name, described.parameters, described.reads, described.writes, {}};
  last.forward = [decoder, table = described.parameters.back()](const Tensors& parameters, const Tensors& in) {
    return head(decoder, table, parameters, in);
  };
  return segments;
}

}  // namespace sf::model
