// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/checks.h"
#include "ops/kernels.h"
#include "ops/parallel.h"
#include "ops/plain.h"
#include "sf_kernels/rows.h"

namespace sf::ops {

namespace {

struct SwiGlu : torch::autograd::Function<SwiGlu> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& gate_in,
                            const at::Tensor& up_in) {
    const at::Tensor gate = gate_in.contiguous(), up = up_in.contiguous();
    at::Tensor y = at::empty(gate.sizes(), gate.options());
    kernels::swiglu(type_of(gate), gate.const_data_ptr(), up.const_data_ptr(), y.mutable_data_ptr(),
                    static_cast<size_t>(gate.numel()), parallel());
    context->save_for_backward({gate, up});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &gate = saved[0], &up = saved[1], g = grads[0].contiguous();
    at::Tensor dgate = at::empty(gate.sizes(), gate.options()), dup = at::empty(up.sizes(), up.options());
    kernels::swiglu_backward(type_of(gate), gate.const_data_ptr(), up.const_data_ptr(), g.const_data_ptr(),
                             dgate.mutable_data_ptr(), dup.mutable_data_ptr(), static_cast<size_t>(gate.numel()),
                             parallel());
    return {dgate, dup};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  SF_ASSERT(gate.sizes() == up.sizes() && gate.scalar_type() == up.scalar_type());
  if (plain_for(gate)) return plain::swiglu(gate, up);
  return SwiGlu::apply(gate, up);
}

}  // namespace sf::ops
