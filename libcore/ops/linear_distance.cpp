// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_distance.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>

#include "base/error.h"
#include "ops/checks.h"
#include "ops/head_blocks.h"
#include "ops/kernels.h"
#include "ops/parallel.h"
#include "ops/plain.h"
#include "sf_kernels/loss.h"
#include "tensor/device.h"

namespace sf::ops {
namespace {

void check(const std::vector<LogitPart>& parts, const DistanceJudge& judge) {
  SF_ASSERT(!parts.empty());
  const int64_t rows = parts[0].x.size(0), width = parts[0].w.size(0);
  for (const LogitPart& part : parts) SF_ASSERT(part.x.size(0) == rows && part.w.size(0) == width);
  SF_ASSERT(judge.nll_weight.numel() == rows && judge.l1_weight.numel() == rows && judge.labels.numel() == rows);
  SF_ASSERT(!judge.states.defined() || judge.states.sizes() == parts[0].x.sizes());
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t label = judge.labels.const_data_ptr<int64_t>()[i];
    SF_CHECK(label >= 0 && label < width, Exit::kSoftware, "label {} is outside the vocabulary of {}", label, width);
  }
}

// On the host, dense, of the types above.
DistanceJudge prepared(const DistanceJudge& given) {
  auto floats = [](const at::Tensor& t) { return tensor::on_host(t.detach()).to(at::kFloat).contiguous(); };
  return {tensor::on_host(given.labels).to(at::kLong).contiguous(), floats(given.nll_weight), floats(given.l1_weight),
          given.states.defined() ? given.states.detach().contiguous() : at::Tensor()};
}

LinearDistance columns(const std::vector<kernels::DistanceRow>& found) {
  const int64_t rows = std::ssize(found);
  auto floats = [&](float kernels::DistanceRow::*of) {
    at::Tensor out = at::empty({rows}, at::kFloat);
    for (int64_t i = 0; i < rows; ++i) out.mutable_data_ptr<float>()[i] = found[static_cast<size_t>(i)].*of;
    return out;
  };
  auto ids = [&](int32_t kernels::DistanceRow::*of) {
    at::Tensor out = at::empty({rows}, at::kLong);
    for (int64_t i = 0; i < rows; ++i) out.mutable_data_ptr<int64_t>()[i] = found[static_cast<size_t>(i)].*of;
    return out;
  };
  using Row = kernels::DistanceRow;
  double total = 0;
  for (const Row& row : found) total += static_cast<double>(row.loss);
  return {at::scalar_tensor(total, at::kFloat),
          floats(&Row::nll),
          floats(&Row::l1),
          floats(&Row::top),
          floats(&Row::teacher_top),
          ids(&Row::argmax),
          ids(&Row::teacher_argmax)};
}

}  // namespace

LinearDistance linear_distance(const std::vector<LogitPart>& parts, const DistanceJudge& given) {
  const DistanceJudge judge = prepared(given);
  check(parts, judge);
  if (plain_for(parts[0].x)) return plain::linear_distance(parts, judge);
  const bool graph = at::GradMode::is_enabled();
  std::vector<HeadPart> heads;
  for (const LogitPart& part : parts)
    heads.push_back({part.x.detach().contiguous(), part.w.detach().contiguous(), graph && part.x.requires_grad(),
                     graph && part.w.requires_grad()});
  std::vector<kernels::DistanceRow> found(static_cast<size_t>(heads[0].x.size(0)));
  const std::vector<HeadGradients> gradients =
      head_by_blocks(heads, [&](int64_t row, int64_t count, float* z, bool gradient) {
        kernels::DistanceLoss op;
        at::Tensor t;
        if (judge.states.defined()) t = head_logits(judge.states.narrow(0, row, count), heads[0].w);
        op.rows = static_cast<size_t>(count), op.width = static_cast<size_t>(heads[0].w.size(0)), op.z = z;
        if (t.defined()) op.t = t.mutable_data_ptr<float>();
        op.label = judge.labels.const_data_ptr<int64_t>() + row;
        op.nll_weight = judge.nll_weight.const_data_ptr<float>() + row;
        op.l1_weight = judge.l1_weight.const_data_ptr<float>() + row;
        op.gradient = gradient, op.type = type_of(heads[0].x);
        kernels::distance_loss(op, found.data() + row, parallel());
      });
  LinearDistance out = columns(found);
  for (size_t i = 0; i < parts.size(); ++i) out.loss = carry(parts[i].x, parts[i].w, out.loss, gradients[i]);
  return out;
}

}  // namespace sf::ops
