// SPDX-License-Identifier: Apache-2.0
#include "ops/packed_linear.h"

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "base/fault.h"
#include "ops/parallel.h"
#include "sf_kernels/gemm.h"

namespace sf::ops {

struct PackedLinear::State {
  at::Tensor packed;  // flat, fp32 or bf16
  Dtype compute = Dtype::kF32;
  int64_t n = 0, k = 0;
};

namespace {

const uint16_t* bits(const at::Tensor& t) {
  return reinterpret_cast<const uint16_t*>(t.const_data_ptr());
}

kernels::Matrix<const uint16_t> bf16_matrix(const at::Tensor& t) {
  return {bits(t), static_cast<size_t>(t.stride(0)), static_cast<size_t>(t.stride(1))};
}
kernels::Matrix<const float> f32_matrix(const at::Tensor& t) {
  return {t.const_data_ptr<float>(), static_cast<size_t>(t.stride(0)), static_cast<size_t>(t.stride(1))};
}

// x as [M, K] rows of the compute type.
at::Tensor as_rows(const at::Tensor& x, int64_t k, Dtype compute) {
  SF_ASSERT(x.dim() >= 1 && x.size(-1) == k);
  return x.detach().to(compute == Dtype::kF32 ? at::kFloat : at::kBFloat16).reshape({-1, k});
}

}  // namespace

PackedLinear PackedLinear::pack(const at::Tensor& weight, Dtype compute) {
  SF_CHECK(compute == Dtype::kF32 || compute == Dtype::kBF16, Exit::kConfig,
           "packed linear computes in F32 or BF16, not {}", name_of(compute));
  SF_ASSERT(weight.dim() == 2);
  const size_t n = static_cast<size_t>(weight.size(0)), k = static_cast<size_t>(weight.size(1));
  const auto state = std::make_shared<State>();
  state->compute = compute;
  state->n = weight.size(0);
  state->k = weight.size(1);
  const at::Tensor w = weight.detach().to(compute == Dtype::kF32 ? at::kFloat : at::kBFloat16);
  if (compute == Dtype::kF32) {
    state->packed = at::empty({static_cast<int64_t>(kernels::packed_f32_size(n, k))}, at::kFloat);
    kernels::pack_f32(f32_matrix(w), n, k, state->packed.mutable_data_ptr<float>(), parallel());
  } else {
    state->packed = at::empty({static_cast<int64_t>(kernels::packed_bf16_size(n, k))}, at::kBFloat16);
    auto* to = reinterpret_cast<uint16_t*>(state->packed.mutable_data_ptr());
    kernels::pack_bf16(bf16_matrix(w), n, k, to, parallel());
  }
  PackedLinear out;
  out.state_ = state;
  return out;
}

int64_t PackedLinear::in_features() const {
  return state_->k;
}
int64_t PackedLinear::out_features() const {
  return state_->n;
}
Dtype PackedLinear::compute() const {
  return state_->compute;
}
int64_t PackedLinear::bytes() const {
  return static_cast<int64_t>(state_->packed.nbytes());
}

at::Tensor PackedLinear::apply_fp32(const at::Tensor& x, const at::Tensor& bias) const {
  const at::Tensor rows = as_rows(x, state_->k, state_->compute);
  const size_t m = static_cast<size_t>(rows.size(0)), n = static_cast<size_t>(state_->n);
  const size_t k = static_cast<size_t>(state_->k);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = state_->n;
  at::Tensor y = at::empty(shape, at::kFloat);
  at::Tensor b;
  if (bias.defined()) b = bias.detach().to(at::kFloat).contiguous();
  const float* addend = b.defined() ? b.const_data_ptr<float>() : nullptr;
  const kernels::Matrix<float> to{y.mutable_data_ptr<float>(), n, 1};
  if (state_->compute == Dtype::kF32) {
    kernels::gemm_f32(f32_matrix(rows), m, state_->packed.const_data_ptr<float>(), n, k, addend, to, parallel());
  } else {
    kernels::gemm_bf16(bf16_matrix(rows), m, bits(state_->packed), n, k, addend, to, parallel());
  }
  // Negative control of the row-invariance tests: the first row notices that it has company.
  if (fault("ops.row_invariance") && m > 1) y.mutable_data_ptr<float>()[0] += 1e-3f;
  return y;
}

at::Tensor PackedLinear::apply(const at::Tensor& x, const at::Tensor& bias) const {
  return apply_fp32(x, bias).to(x.scalar_type());
}

Top1 argmax_and_lse(const at::Tensor& hidden, const PackedLinear& head) {
  SF_ASSERT(hidden.dim() == 2);
  const at::Tensor rows = as_rows(hidden, head.in_features(), head.compute());
  const size_t m = static_cast<size_t>(rows.size(0)), n = static_cast<size_t>(head.out_features());
  const size_t k = static_cast<size_t>(head.in_features());
  std::vector<kernels::RowSummary> summary(m);
  const at::Tensor& packed = head.state_->packed;
  if (head.compute() == Dtype::kF32) {
    kernels::gemm_f32_summary(f32_matrix(rows), m, packed.const_data_ptr<float>(), n, k, summary.data(), parallel());
  } else {
    kernels::gemm_bf16_summary(bf16_matrix(rows), m, bits(packed), n, k, summary.data(), parallel());
  }
  Top1 out{at::empty({rows.size(0)}, at::kInt), at::empty({rows.size(0)}, at::kFloat),
           at::empty({rows.size(0)}, at::kFloat)};
  for (size_t r = 0; r < m; ++r) {
    out.top1.mutable_data_ptr<int32_t>()[r] = summary[r].top1;
    out.lse.mutable_data_ptr<float>()[r] = summary[r].lse;
    out.margin.mutable_data_ptr<float>()[r] = summary[r].margin;
  }
  return out;
}

}  // namespace sf::ops
