// SPDX-License-Identifier: Apache-2.0
#include "ops/packed_linear.h"

#include <ATen/ops/empty.h>

#include <cmath>

#include "base/error.h"
#include "ops/parallel.h"
#include "sf_kernels/gemm.h"

namespace sf::ops {

struct PackedLinear::State {
  at::Tensor weight;  // fp32
  Dtype compute = Dtype::kF32;
};

PackedLinear PackedLinear::pack(const at::Tensor& weight, Dtype compute) {
  SF_CHECK(compute == Dtype::kF32 || compute == Dtype::kBF16, Exit::kConfig,
           "packed linear computes in F32 or BF16, not {}", name_of(compute));
  SF_ASSERT(weight.dim() == 2);
  PackedLinear packed;
  at::Tensor w = compute == Dtype::kBF16 ? weight.to(at::kBFloat16).to(at::kFloat) : weight.to(at::kFloat);
  packed.state_ = std::make_shared<State>(State{w.detach().contiguous().clone(), compute});
  return packed;
}

int64_t PackedLinear::in_features() const {
  return state_->weight.size(1);
}
int64_t PackedLinear::out_features() const {
  return state_->weight.size(0);
}
Dtype PackedLinear::compute() const {
  return state_->compute;
}
int64_t PackedLinear::bytes() const {
  return state_->weight.nbytes();
}

at::Tensor PackedLinear::apply_fp32(const at::Tensor& x, const at::Tensor& bias) const {
  SF_ASSERT(x.size(-1) == in_features());
  const at::Tensor rounded = compute() == Dtype::kBF16 ? x.to(at::kBFloat16) : x;
  const at::Tensor wide = rounded.to(at::kFloat).contiguous();
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = out_features();
  at::Tensor y = at::empty(shape, at::kFloat);
  const size_t n = out_features(), k = in_features(), m = wide.numel() / k;
  const at::Tensor b = bias.defined() ? bias.to(at::kFloat).contiguous() : bias;
  const float* from = wide.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  const float* w = state_->weight.const_data_ptr<float>();
  kernels::run(parallel(), m, [&](size_t begin, size_t end) {
    kernels::reference::gemm_f32({from + begin * k, k, 1}, end - begin, {w, k, 1}, n, k,
                                 b.defined() ? b.const_data_ptr<float>() : nullptr, {to + begin * n, n, 1});
  });
  return y;
}

at::Tensor PackedLinear::apply(const at::Tensor& x, const at::Tensor& bias) const {
  return apply_fp32(x, bias).to(x.scalar_type());
}

Top1 argmax_and_lse(const at::Tensor& hidden, const PackedLinear& head) {
  const at::Tensor logits = head.apply_fp32(hidden);
  const int64_t rows = logits.size(0), n = logits.size(1);
  Top1 out{at::empty({rows}, at::kInt), at::empty({rows}, at::kFloat), at::empty({rows}, at::kFloat)};
  for (int64_t r = 0; r < rows; ++r) {
    const float* z = logits.const_data_ptr<float>() + r * n;
    int64_t best = 0;
    float second = -INFINITY;
    for (int64_t i = 1; i < n; ++i) {
      if (z[i] > z[best])
        second = z[best], best = i;
      else
        second = std::max(second, z[i]);
    }
    double total = 0;
    for (int64_t i = 0; i < n; ++i) total += std::exp(static_cast<double>(z[i] - z[best]));
    out.top1.mutable_data_ptr<int32_t>()[r] = static_cast<int32_t>(best);
    out.margin.mutable_data_ptr<float>()[r] = z[best] - second;
    out.lse.mutable_data_ptr<float>()[r] = static_cast<float>(z[best] + std::log(total));
  }
  return out;
}

}  // namespace sf::ops
