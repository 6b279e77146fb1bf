// SPDX-License-Identifier: Apache-2.0
#include "gen/gates.h"

#include <cmath>

namespace sf::gen {
namespace {

at::Tensor wide_sigmoid(const at::Tensor& x) {
  at::Tensor wide = x.to(at::kFloat, false, true).contiguous();
  float* values = wide.mutable_data_ptr<float>();
  for (int64_t i = 0; i < wide.numel(); ++i) values[i] = 1 / (1 + std::exp(-values[i]));
  return wide;
}

}  // namespace

at::Tensor sigmoid(const at::Tensor& x) {
  return wide_sigmoid(x).to(x.scalar_type());
}

at::Tensor gated_by_sigmoid(const at::Tensor& x, const at::Tensor& gate) {
  return wide_sigmoid(gate).mul_(x).to(x.scalar_type());
}

}  // namespace sf::gen
