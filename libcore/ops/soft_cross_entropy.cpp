// SPDX-License-Identifier: Apache-2.0
#include "ops/soft_cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/softmax.h>

namespace sf::ops {

SoftCrossEntropy soft_cross_entropy(const at::Tensor& z, const at::Tensor& t, const at::Tensor& target_lse,
                                    const at::Tensor& mask, bool want_metrics) {
  const at::Tensor wide = z.to(at::kFloat), teacher = t.detach().to(at::kFloat);
  const at::Tensor log_q = at::log_softmax(wide, -1);
  SoftCrossEntropy out;
  out.loss = -((at::softmax(teacher, -1) * log_q).sum(-1) * mask).sum();
  if (!want_metrics) return out;
  out.argmax = at::argmax(wide.detach(), -1);
  out.acceptance = at::minimum(log_q.detach().exp(), at::exp(teacher - target_lse.unsqueeze(-1))).sum(-1);
  return out;
}

}  // namespace sf::ops
