// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "ops/parallel.h"
#include "sf_kernels/gemm.h"

namespace sf::ops {

namespace {

template <typename T>
kernels::Matrix<const T> matrix(const at::Tensor& t) {
  return {static_cast<const T*>(t.const_data_ptr()), static_cast<size_t>(t.stride(0)),
          static_cast<size_t>(t.stride(1))};
}

// [M, K] x [N, K]^T -> [M, N], any strides. Packs w afresh: its cost is one pass over w against M passes of the
// product.
at::Tensor product(const at::Tensor& x, const at::Tensor& w, const float* bias = nullptr) {
  const size_t m = static_cast<size_t>(x.size(0)), n = static_cast<size_t>(w.size(0)),
               k = static_cast<size_t>(x.size(1));
  at::Tensor y = at::empty({x.size(0), w.size(0)}, at::kFloat);
  const kernels::Matrix<float> to{y.mutable_data_ptr<float>(), n, 1};
  if (x.scalar_type() == at::kFloat) {
    at::Tensor packed = at::empty({static_cast<int64_t>(kernels::packed_f32_size(n, k))}, at::kFloat);
    float* panels = packed.mutable_data_ptr<float>();
    kernels::pack_f32(matrix<float>(w), n, k, panels, parallel());
    kernels::gemm_f32(matrix<float>(x), m, panels, n, k, bias, to, parallel());
    return y;
  }
  at::Tensor packed = at::empty({static_cast<int64_t>(kernels::packed_bf16_size(n, k))}, at::kBFloat16);
  auto* panels = static_cast<uint16_t*>(packed.mutable_data_ptr());
  kernels::pack_bf16(matrix<uint16_t>(w), n, k, panels, parallel());
  kernels::gemm_bf16(matrix<uint16_t>(x), m, panels, n, k, bias, to, parallel());
  return y.to(at::kBFloat16);
}

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& w,
                            const std::optional<at::Tensor>& bias) {
    context->save_for_backward({x, w});
    context->saved_data["bias"] = bias.has_value();
    at::Tensor b;
    if (bias) b = bias->to(at::kFloat).contiguous();
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = w.size(0);
    return product(x.reshape({-1, x.size(-1)}), w, b.defined() ? b.const_data_ptr<float>() : nullptr).view(shape);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &w = saved[1];
    const at::Tensor g = grads[0].reshape({-1, w.size(0)});
    at::Tensor dx, dw, db;
    if (context->needs_input_grad(0)) dx = product(g, w.t()).view(x.sizes());
    if (context->needs_input_grad(1)) dw = product(g.t(), x.reshape({-1, x.size(-1)}).t());
    if (context->saved_data["bias"].toBool() && context->needs_input_grad(2)) {
      db = g.sum(0, false, at::kFloat).to(g.scalar_type());
    }
    return {dx, dw, db};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  SF_ASSERT(w.dim() == 2 && x.size(-1) == w.size(1) && x.scalar_type() == w.scalar_type());
  SF_ASSERT(x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
  return Linear::apply(x, w, bias.defined() ? std::optional(bias) : std::nullopt);
}

}  // namespace sf::ops
