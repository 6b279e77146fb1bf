// SPDX-License-Identifier: Apache-2.0
#include "gen/linear.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "base/fault.h"

namespace sf::gen {

Linear::Linear(const Weights& weights, std::span<const std::string> names, std::span<const int64_t> rows, int64_t in)
    : names_(names.begin(), names.end()), rows_(rows.begin(), rows.end()), base_(weights.pack(names, rows, in)) {}

at::Tensor Linear::apply(const at::Tensor& x, const at::Tensor& bias) const {
  at::Tensor y = base_.apply(x, bias);
  return low_.defined() ? y.add_(up_.apply(low_.apply(x))) : y;
}

size_t Linear::adapt(const LiveAdapter& adapter) {
  const int64_t in = base_.in_features();
  std::vector<at::Tensor> low;
  int64_t ranks = 0, row = 0;
  for (const std::string& name : names_)
    if (auto found = adapter.find(name); found != adapter.end()) ranks += found->second.a.size(0);
  at::Tensor up = at::zeros({base_.out_features(), ranks}, at::kFloat);
  for (size_t i = 0, column = 0; i < names_.size(); row += rows_[i++]) {
    auto found = adapter.find(names_[i]);
    if (found == adapter.end()) continue;
    const Factors& factors = found->second;
    const int64_t rank = factors.a.size(0);
    SF_CHECK(factors.a.dim() == 2 && factors.a.size(1) == in && factors.b.dim() == 2 && factors.b.size(0) == rows_[i] &&
                 factors.b.size(1) == rank,
             Exit::kData, "an adapter of {} has other shapes than its {} rows of {}", names_[i], rows_[i], in);
    low.push_back(factors.a);
    up.narrow(0, row, rows_[i]).narrow(1, static_cast<int64_t>(column), rank).copy_(factors.b.mul(factors.scale));
    column += static_cast<size_t>(rank);
  }
  if (fault("gen.ignore_adapter")) return low.size();
  low_ = low.empty() ? ops::PackedLinear() : ops::PackedLinear::pack(at::cat(low, 0), base_.compute());
  up_ = low.empty() ? ops::PackedLinear() : ops::PackedLinear::pack(up, base_.compute());
  return low.size();
}

}  // namespace sf::gen
