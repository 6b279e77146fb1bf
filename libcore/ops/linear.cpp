// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "ops/kernels.h"
#include "ops/product.h"

namespace sf::ops {

namespace {

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& w,
                            const std::optional<at::Tensor>& bias) {
    context->save_for_backward({x, w});
    context->saved_data["bias"] = bias.has_value();
    at::Tensor b;
    if (bias) b = bias->to(at::kFloat).contiguous();
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = w.size(0);
    const float* terms = b.defined() ? b.const_data_ptr<float>() : nullptr;
    return product(x.reshape({-1, x.size(-1)}), w, x.scalar_type(), terms).view(shape);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &w = saved[1];
    const at::Tensor g = grads[0].reshape({-1, w.size(0)});
    at::Tensor dx, dw, db;
    if (context->needs_input_grad(0)) dx = product(g, w.t(), g.scalar_type()).view(x.sizes());
    if (context->needs_input_grad(1)) dw = product(g.t(), x.reshape({-1, x.size(-1)}).t(), g.scalar_type());
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
  if (plain_for(x)) return at::linear(x, w, bias.defined() ? std::optional(bias) : std::nullopt);
  return Linear::apply(x, w, bias.defined() ? std::optional(bias) : std::nullopt);
}

}  // namespace sf::ops
