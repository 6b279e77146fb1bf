// SPDX-License-Identifier: Apache-2.0
#include "model/slices.h"

#include <ATen/ops/cat.h>

#include <algorithm>

#include "base/error.h"
#include "ops/recompute.h"

namespace sf::model {

std::vector<at::Tensor> in_slices(const std::vector<at::Tensor>& rows, const std::vector<at::Tensor>& whole,
                                  int64_t slice, const SliceFunction& f) {
  SF_ASSERT(!rows.empty() && rows[0].size(0) > 0 && slice > 0);
  std::vector<std::vector<at::Tensor>> parts;
  for (int64_t lo = 0; lo < rows[0].size(0); lo += slice) {
    std::vector<at::Tensor> inputs;
    for (const at::Tensor& each : rows)
      inputs.push_back(each.narrow(0, lo, std::min(slice, rows[0].size(0) - lo)).contiguous());
    inputs.insert(inputs.end(), whole.begin(), whole.end());
    auto cut = static_cast<std::ptrdiff_t>(rows.size());
    std::vector<at::Tensor> results = ops::recompute(
        [f, cut](const std::vector<at::Tensor>& given) {
          return f({given.begin(), given.begin() + cut}, {given.begin() + cut, given.end()});
        },
        inputs);
    parts.resize(results.size());
    for (size_t i = 0; i < results.size(); ++i) parts[i].push_back(results[i]);
  }
  std::vector<at::Tensor> joined;
  for (const std::vector<at::Tensor>& each : parts) joined.push_back(at::cat(each, 0));
  return joined;
}

}  // namespace sf::model
