// SPDX-License-Identifier: Apache-2.0
#include "model/experts.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>

#include <tuple>

#include "base/error.h"
#include "ops/linear.h"
#include "tensor/device.h"

namespace sf::model {
namespace {

at::Tensor index_of(const std::vector<int64_t>& places) {
  at::Tensor index = at::empty({std::ssize(places)}, at::kLong);
  std::copy(places.begin(), places.end(), index.mutable_data_ptr<int64_t>());
  return index;
}

// Where each expert was chosen, ascending: places of the flat [N * chosen].
std::vector<std::vector<int64_t>> places_by_expert(const at::Tensor& chosen, int64_t experts) {
  std::vector<std::vector<int64_t>> places(static_cast<size_t>(experts));
  const int64_t* expert = chosen.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < chosen.numel(); ++i) places[static_cast<size_t>(expert[i])].push_back(i);
  return places;
}

}  // namespace

// Taken apart once: the gradient of all experts is then put together once, not added up expert by expert.
ExpertBank::ExpertBank(const at::Tensor& weight) : weight_(weight.unbind(0)) {}

void ExpertBank::adapt(const at::Tensor& a, const at::Tensor& b, const arch::Adapter& adapter) {
  a_ = a.view({adapter.experts, adapter.rank, adapter.in}).unbind(0);
  b_ = b.view({adapter.out, adapter.rank, adapter.experts}).unbind(2);
  scale_ = adapter.scale;
}

at::Tensor ExpertBank::apply(int64_t expert, const at::Tensor& x) const {
  const auto e = static_cast<size_t>(expert);
  at::Tensor y = ops::linear(x, weight_[e]);
  if (a_.empty()) return y;
  return y.add(ops::linear(ops::linear(x, a_[e]), b_[e]).mul(scale_));
}

at::Tensor mix_experts(const at::Tensor& x, const at::Tensor& scores, const OneExpert& one,
                       const arch::Experts& experts) {
  at::Tensor probabilities = at::softmax(scores, -1, at::kFloat);
  auto [weight, chosen] = at::topk(probabilities, experts.chosen, -1);
  if (experts.normalise) weight = weight.div(weight.sum(-1, true));
  weight = weight.to(x.scalar_type()).reshape({-1});
  at::Tensor sum = at::zeros_like(x);
  const auto places = places_by_expert(tensor::on_host(chosen).contiguous(), experts.count);
  for (int64_t e = 0; e < experts.count; ++e) {
    const std::vector<int64_t>& mine = places[static_cast<size_t>(e)];
    if (mine.empty()) continue;
    std::vector<int64_t> rows;
    for (int64_t place : mine) rows.push_back(place / experts.chosen);
    at::Tensor row = tensor::beside(index_of(rows), x);
    at::Tensor out = one(e, x.index_select(0, row)).mul(tensor::select(weight, 0, index_of(mine)).unsqueeze(-1));
    sum.index_add_(0, row, out);
  }
  return sum;
}

}  // namespace sf::model
