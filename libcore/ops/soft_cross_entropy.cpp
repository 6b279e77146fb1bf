// SPDX-License-Identifier: Apache-2.0
#include "ops/soft_cross_entropy.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/checks.h"
#include "ops/parallel.h"
#include "ops/plain.h"
#include "sf_kernels/loss.h"

namespace sf::ops {

namespace {

static_assert(sizeof(kernels::SoftRow) == 7 * 4);

kernels::SoftLoss describe(const at::Tensor& z, const at::Tensor& t, const at::Tensor& mask) {
  kernels::SoftLoss op;
  op.z_type = type_of(z), op.t_type = type_of(t);
  op.rows = static_cast<size_t>(z.size(0)), op.width = static_cast<size_t>(z.size(1));
  op.z = z.const_data_ptr(), op.t = t.const_data_ptr();
  op.weight = mask.const_data_ptr<float>();
  return op;
}

struct Loss : torch::autograd::Function<Loss> {
  // `rows`: I32 [N, 7], the bytes of a SoftRow each.
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& z, const at::Tensor& t,
                            const at::Tensor& mask, const at::Tensor& rows) {
    context->save_for_backward({z, t, mask, rows});
    const auto* row = static_cast<const kernels::SoftRow*>(rows.const_data_ptr());
    double total = 0;
    for (int64_t i = 0; i < z.size(0); ++i) total += static_cast<double>(row[i].loss);
    return at::scalar_tensor(total, at::kFloat);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& z = saved[0];
    at::Tensor dz = at::empty(z.sizes(), z.options());
    kernels::soft_loss_backward(describe(z, saved[1], saved[2]),
                                static_cast<const kernels::SoftRow*>(saved[3].const_data_ptr()), grads[0].item<float>(),
                                dz.mutable_data_ptr(), parallel());
    return {dz, {}, {}, {}};
  }
};

}  // namespace

SoftCrossEntropy soft_cross_entropy(const at::Tensor& z_in, const at::Tensor& t_in, const at::Tensor& target_lse,
                                    const at::Tensor& mask_in, bool want_metrics) {
  SF_ASSERT(z_in.dim() == 2 && z_in.sizes() == t_in.sizes() && z_in.size(1) > 0);
  SF_ASSERT(mask_in.dim() == 1 && mask_in.size(0) == z_in.size(0));
  if (!z_in.is_cpu()) return plain::soft_cross_entropy(z_in, t_in, target_lse, mask_in, want_metrics);
  const at::Tensor z = z_in.contiguous(), t = t_in.detach().contiguous();
  const at::Tensor mask = mask_in.detach().to(at::kFloat).contiguous();
  kernels::SoftLoss op = describe(z, t, mask);
  at::Tensor lse;
  if (want_metrics) {
    SF_ASSERT(target_lse.defined() && target_lse.sizes() == mask.sizes());
    lse = target_lse.detach().to(at::kFloat).contiguous();
    op.target_lse = lse.const_data_ptr<float>();
  }
  const at::Tensor rows = at::empty({z.size(0), 7}, at::kInt);
  auto* row = static_cast<kernels::SoftRow*>(rows.mutable_data_ptr());
  kernels::soft_loss(op, row, parallel());
  SoftCrossEntropy out;
  out.loss = Loss::apply(z, t, mask, rows);
  if (!want_metrics) return out;
  out.argmax = at::empty({z.size(0)}, at::kLong);
  out.acceptance = at::empty({z.size(0)}, at::kFloat);
  for (int64_t i = 0; i < z.size(0); ++i) {
    out.argmax.mutable_data_ptr<int64_t>()[i] = row[i].argmax;
    out.acceptance.mutable_data_ptr<float>()[i] = row[i].acceptance;
  }
  return out;
}

}  // namespace sf::ops
