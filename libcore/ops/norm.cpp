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

struct Form {
  double eps = 0;
  bool centred = false;
  int64_t groups = 1;
};

kernels::RmsNorm describe(const at::Tensor& x, const at::Tensor& weight, const Form& form) {
  kernels::RmsNorm op;
  op.type = type_of(x);
  op.centred = form.centred;
  op.period = static_cast<size_t>(form.groups);
  op.width = static_cast<size_t>(x.size(-1)) / op.period;
  op.rows = static_cast<size_t>(x.numel()) / op.width;
  op.x_row = op.width;
  op.eps = static_cast<float>(form.eps);
  op.x = x.const_data_ptr();
  op.weight = weight.const_data_ptr();
  return op;
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight_in, const Form& form) {
    const at::Tensor x = input.contiguous(), weight = weight_in.contiguous();
    const kernels::RmsNorm op = describe(x, weight, form);
    at::Tensor y = at::empty(x.sizes(), x.options());
    at::Tensor rstd = at::empty({static_cast<int64_t>(op.rows)}, at::kFloat);
    kernels::rms_norm(op, y.mutable_data_ptr(), rstd.mutable_data_ptr<float>(), parallel());
    context->save_for_backward({x, weight, rstd});
    auto& data = context->saved_data;
    data["eps"] = form.eps, data["centred"] = form.centred, data["groups"] = form.groups;
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &rstd = saved[2], g = grads[0].contiguous();
    at::Tensor dx, dweight;
    if (context->needs_input_grad(0)) dx = at::empty(x.sizes(), x.options());
    if (context->needs_input_grad(1)) dweight = at::empty(weight.sizes(), at::kFloat);
    const auto& data = context->saved_data;
    const Form form{data.at("eps").toDouble(), data.at("centred").toBool(), data.at("groups").toInt()};
    kernels::rms_norm_backward(describe(x, weight, form), g.const_data_ptr(), rstd.const_data_ptr<float>(),
                               dx.defined() ? dx.mutable_data_ptr() : nullptr,
                               dweight.defined() ? dweight.mutable_data_ptr<float>() : nullptr, parallel());
    return {dx, dweight.defined() ? dweight.to(weight.scalar_type()) : dweight, {}};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  SF_ASSERT(weight.dim() == 1 && x.size(-1) == weight.size(0) && x.scalar_type() == weight.scalar_type());
  if (plain_for(x)) return plain::rms_norm(x, weight, eps);
  return RmsNorm::apply(x, weight, Form{eps});
}

at::Tensor rms_norm_centred(const at::Tensor& x, const at::Tensor& weight, double eps, int64_t groups) {
  SF_ASSERT(weight.dim() == 1 && x.size(-1) == weight.size(0) && x.scalar_type() == weight.scalar_type());
  SF_ASSERT(groups > 0 && weight.size(0) % groups == 0);
  if (plain_for(x)) return plain::rms_norm_centred(x, weight, eps, groups);
  return RmsNorm::apply(x, weight, Form{eps, true, groups});
}

}  // namespace sf::ops
