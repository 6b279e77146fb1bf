// SPDX-License-Identifier: Apache-2.0
#include "ops/norm.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/checks.h"
#include "ops/kernels.h"
#include "ops/parallel.h"
#include "ops/plain.h"
#include "sf_kernels/rows.h"

namespace sf::ops {

namespace {

kernels::RmsNorm describe(const at::Tensor& x, const at::Tensor& weight, double eps) {
  kernels::RmsNorm op;
  op.type = type_of(x);
  op.width = static_cast<size_t>(x.size(-1));
  op.rows = static_cast<size_t>(x.numel()) / op.width;
  op.x_row = op.width;
  op.eps = static_cast<float>(eps);
  op.x = x.const_data_ptr();
  op.weight = weight.const_data_ptr();
  return op;
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight_in, double eps) {
    const at::Tensor x = input.contiguous(), weight = weight_in.contiguous();
    const kernels::RmsNorm op = describe(x, weight, eps);
    at::Tensor y = at::empty(x.sizes(), x.options());
    at::Tensor rstd = at::empty({static_cast<int64_t>(op.rows)}, at::kFloat);
    kernels::rms_norm(op, y.mutable_data_ptr(), rstd.mutable_data_ptr<float>(), parallel());
    context->save_for_backward({x, weight, rstd});
    context->saved_data["eps"] = eps;
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &rstd = saved[2], g = grads[0].contiguous();
    at::Tensor dx, dweight;
    if (context->needs_input_grad(0)) dx = at::empty(x.sizes(), x.options());
    if (context->needs_input_grad(1)) dweight = at::empty(weight.sizes(), at::kFloat);
    kernels::rms_norm_backward(describe(x, weight, context->saved_data["eps"].toDouble()), g.const_data_ptr(),
                               rstd.const_data_ptr<float>(), dx.defined() ? dx.mutable_data_ptr() : nullptr,
                               dweight.defined() ? dweight.mutable_data_ptr<float>() : nullptr, parallel());
    return {dx, dweight.defined() ? dweight.to(weight.scalar_type()) : dweight, {}};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  SF_ASSERT(weight.dim() == 1 && x.size(-1) == weight.size(0) && x.scalar_type() == weight.scalar_type());
  if (plain_for(x)) return plain::rms_norm(x, weight, eps);
  return RmsNorm::apply(x, weight, eps);
}

}  // namespace sf::ops
