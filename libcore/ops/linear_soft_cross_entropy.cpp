// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_soft_cross_entropy.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>
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
namespace {

// Rows in the order of their teachers.
struct Order {
  explicit Order(const at::Tensor& row_of) : from(at::empty_like(row_of)), teacher(at::empty_like(row_of)) {
    const int64_t* of = row_of.const_data_ptr<int64_t>();
    int64_t *rows = from.mutable_data_ptr<int64_t>(), *teachers = teacher.mutable_data_ptr<int64_t>();
    std::iota(rows, rows + from.numel(), 0);
    std::stable_sort(rows, rows + from.numel(), [of](int64_t a, int64_t b) { return of[a] < of[b]; });
    for (int64_t i = 0; i < from.numel(); ++i) teachers[i] = of[rows[i]];
  }
  at::Tensor from, teacher;  // I64 [N]: the caller's row, and its state
};

// Judges one block: the teachers' logits are made for its rows alone.
class SoftJudge {
 public:
  SoftJudge(const SoftTeacher& teacher, const Order& order, const at::Tensor& weight, kernels::Type type)
      : states_(teacher.states.detach().contiguous()),
        head_(teacher.head.detach().contiguous()),
        order_(order),
        weight_(weight),
        type_(type),
        found_(static_cast<size_t>(weight.numel())) {
    if (teacher.lse.defined()) lse_ = tensor::on_host(teacher.lse.detach()).to(at::kFloat).contiguous();
  }

  void operator()(int64_t row, int64_t count, float* z, bool gradient) {
    const int64_t* teachers = order_.teacher.const_data_ptr<int64_t>() + row;
    std::vector<int64_t> places, asked;  // of each row: its teacher among those asked; of each of these: its state
    for (int64_t i = 0; i < count; ++i) {
      if (asked.empty() || asked.back() != teachers[i]) asked.push_back(teachers[i]);
      places.push_back(std::ssize(asked) - 1);
    }
    const at::Tensor which = at::empty({std::ssize(asked)}, at::kLong);
    std::ranges::copy(asked, which.mutable_data_ptr<int64_t>());
    const at::Tensor t = head_logits(states_.index_select(0, which), head_);
    const at::Tensor lse = lse_.defined() ? lse_.index_select(0, which) : at::Tensor();
    kernels::SoftLoss op;
    op.rows = static_cast<size_t>(count), op.width = static_cast<size_t>(head_.size(0));
    op.z = z, op.t = t.const_data_ptr<float>(), op.teacher = places.data();
    op.weight = weight_.const_data_ptr<float>() + row;
    if (lse.defined()) op.target_lse = lse.const_data_ptr<float>();
    op.gradient = gradient, op.type = type_;
    kernels::soft_loss(op, found_.data() + row, parallel());
  }
  const std::vector<kernels::SoftRow>& found() const { return found_; }

 private:
  at::Tensor states_, head_, lse_;
  const Order& order_;
  const at::Tensor weight_;  // in the order of the teachers
  kernels::Type type_;
  std::vector<kernels::SoftRow> found_;
};

LinearSoftCrossEntropy in_callers_order(const std::vector<kernels::SoftRow>& found, const Order& order, bool accepts) {
  const int64_t rows = order.from.numel();
  LinearSoftCrossEntropy out{{}, at::empty({rows}, at::kFloat), at::empty({rows}, at::kLong), {}};
  if (accepts) out.acceptance = at::empty({rows}, at::kFloat);
  std::vector<float> losses(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) {
    const kernels::SoftRow& row = found[static_cast<size_t>(i)];
    const int64_t at = order.from.const_data_ptr<int64_t>()[i];
    losses[static_cast<size_t>(at)] = row.loss;
    out.nll.mutable_data_ptr<float>()[at] = row.nll;
    out.argmax.mutable_data_ptr<int64_t>()[at] = row.argmax;
    if (accepts) out.acceptance.mutable_data_ptr<float>()[at] = row.acceptance;
  }
  out.loss = at::scalar_tensor(std::accumulate(losses.begin(), losses.end(), 0.0), at::kFloat);
  return out;
}

}  // namespace

LinearSoftCrossEntropy linear_soft_cross_entropy(const at::Tensor& x, const at::Tensor& w, const SoftTeacher& teacher,
                                                 const at::Tensor& weight_in) {
  SF_ASSERT(x.dim() == 2 && w.dim() == 2 && x.size(1) == w.size(1) && x.scalar_type() == w.scalar_type());
  SF_ASSERT(teacher.states.size(1) == teacher.head.size(1) && teacher.head.size(0) == w.size(0));
  SF_ASSERT(teacher.states.scalar_type() == teacher.head.scalar_type() && weight_in.sizes() == teacher.row_of.sizes());
  SF_ASSERT(teacher.row_of.dim() == 1 && teacher.row_of.size(0) == x.size(0));
  const at::Tensor weight = tensor::on_host(weight_in.detach()).to(at::kFloat).contiguous();
  if (plain_for(x)) return plain::linear_soft_cross_entropy(x, w, teacher, weight);
  const Order order(teacher.row_of.contiguous());
  SF_ASSERT(x.size(0) == 0 || (order.teacher.const_data_ptr<int64_t>()[0] >= 0 &&
                               order.teacher.const_data_ptr<int64_t>()[x.size(0) - 1] < teacher.states.size(0)));
  const bool graph = at::GradMode::is_enabled();
  SoftJudge judge(teacher, order, weight.index_select(0, order.from), type_of(x));
  const HeadPart part{x.detach().index_select(0, order.from), w.detach().contiguous(), graph && x.requires_grad(),
                      graph && w.requires_grad()};
  HeadGradients gradients = head_by_blocks({part}, std::ref(judge))[0];
  if (gradients.x.defined()) gradients.x = at::empty_like(gradients.x).index_copy_(0, order.from, gradients.x);
  LinearSoftCrossEntropy out = in_callers_order(judge.found(), order, teacher.lse.defined());
  out.loss = carry(x, w, out.loss, gradients);
  return out;
}

}  // namespace sf::ops
