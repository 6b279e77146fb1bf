// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_cross_entropy.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>

#include <vector>

#include "base/error.h"
#include "ops/checks.h"
#include "ops/head_blocks.h"
#include "ops/kernels.h"
#include "ops/parallel.h"
#include "ops/plain.h"
#include "sf_kernels/loss.h"
#include "tensor/device.h"

namespace sf::ops {

LinearCrossEntropy linear_cross_entropy(const at::Tensor& x, const at::Tensor& w, const at::Tensor& labels_in,
                                        const at::Tensor& weight_in) {
  SF_ASSERT(x.dim() == 2 && w.dim() == 2 && x.size(1) == w.size(1) && x.scalar_type() == w.scalar_type());
  SF_ASSERT(labels_in.dim() == 1 && labels_in.size(0) == x.size(0) && weight_in.sizes() == labels_in.sizes());
  const at::Tensor labels = tensor::on_host(labels_in).to(at::kLong).contiguous();
  const at::Tensor weight = tensor::on_host(weight_in.detach()).to(at::kFloat).contiguous();
  for (int64_t i = 0; i < labels.numel(); ++i) {
    const int64_t label = labels.const_data_ptr<int64_t>()[i];
    SF_CHECK(label >= 0 && label < w.size(0), Exit::kSoftware, "label {} is outside the vocabulary of {}", label,
             w.size(0));
  }
  if (plain_for(x)) return plain::linear_cross_entropy(x, w, labels, weight);
  const bool graph = at::GradMode::is_enabled();
  std::vector<kernels::HardRow> rows(static_cast<size_t>(x.size(0)));
  const HeadPart part{x.detach().contiguous(), w.detach().contiguous(), graph && x.requires_grad(),
                      graph && w.requires_grad()};
  const HeadGradients gradients = head_by_blocks({part}, [&](int64_t row, int64_t count, float* z, bool gradient) {
    kernels::HardLoss op;
    op.rows = static_cast<size_t>(count), op.width = static_cast<size_t>(w.size(0));
    op.z = z, op.label = labels.const_data_ptr<int64_t>() + row, op.weight = weight.const_data_ptr<float>() + row;
    op.gradient = gradient, op.type = type_of(x);
    kernels::hard_loss(op, rows.data() + row, parallel());
  })[0];
  LinearCrossEntropy out{
      {}, at::empty({x.size(0)}, at::kFloat), at::empty({x.size(0)}, at::kLong), at::empty({x.size(0)}, at::kFloat)};
  double total = 0;
  for (int64_t i = 0; i < x.size(0); ++i) {
    const kernels::HardRow& row = rows[static_cast<size_t>(i)];
    const float share = weight.const_data_ptr<float>()[i];
    total += static_cast<double>(row.loss);
    out.nll.mutable_data_ptr<float>()[i] = share != 0 ? row.nll : 0;
    out.argmax.mutable_data_ptr<int64_t>()[i] = row.argmax;
    out.entropy.mutable_data_ptr<float>()[i] = share != 0 ? row.entropy : 0;
  }
  out.loss = carry(x, w, at::scalar_tensor(total, at::kFloat), gradients);
  return out;
}

}  // namespace sf::ops
