// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "ops/head_blocks.h"
#include "ops/plain.h"
#include "tensor/device.h"

namespace sf::ops::plain {

namespace {

constexpr int64_t kBlockBytes = int64_t{256} << 20;  // of logits

// What rows lose and what their logits change of the weighted sum (where that is asked for).
struct Judged {
  at::Tensor nll, acceptance, gradient;
};
using JudgeRows = std::function<Judged(const at::Tensor& z, int64_t from, bool gradient)>;

// `tables`: logits held at a time, of each row.
LinearSoftCrossEntropy by_blocks(const at::Tensor& x_in, const at::Tensor& w_in, const at::Tensor& weight,
                                 int64_t tables, const JudgeRows& judge) {
  const bool graph = at::GradMode::is_enabled(), want_x = graph && x_in.requires_grad(),
             want_w = graph && w_in.requires_grad();
  at::NoGradGuard found_at_once;
  const at::Tensor x = x_in.detach(), w = w_in.detach(), wide = w.to(at::kFloat);
  const int64_t block = std::max<int64_t>(1, kBlockBytes / (4 * tables * w.size(0)));
  std::vector<at::Tensor> losses, nll, argmax, acceptance, dx;
  at::Tensor dw;
  for (int64_t lo = 0; lo < x.size(0); lo += block) {
    const at::Tensor rows = x.narrow(0, lo, std::min(block, x.size(0) - lo)), z = at::linear(rows.to(at::kFloat), wide);
    const at::Tensor own = weight.narrow(0, lo, rows.size(0)), counts = own.ne(0);
    const Judged found = judge(z, lo, want_x || want_w);
    losses.push_back((found.nll * own).to(at::kDouble).sum().view({1}));
    nll.push_back(found.nll * counts), argmax.push_back(z.argmax(1));
    if (found.acceptance.defined()) acceptance.push_back(found.acceptance * counts);
    if (!found.gradient.defined()) continue;
    const at::Tensor g = (found.gradient * own.unsqueeze(1)).to(x.scalar_type());
    if (want_x) dx.push_back(at::matmul(g, w));
    if (!want_w) continue;
    const at::Tensor part = at::matmul(g.t(), rows);
    dw = dw.defined() ? dw.to(at::kFloat).add_(part) : part;
  }
  const at::Tensor loss = at::cat(losses).sum().to(at::kFloat);
  HeadGradients gradients{dx.empty() ? at::Tensor() : at::cat(dx), dw.defined() ? dw.to(w.scalar_type()) : dw};
  c10::AutoGradMode carried(graph);
  return {carry(x_in, w_in, loss, gradients), at::cat(nll), at::cat(argmax),
          acceptance.empty() ? at::Tensor() : at::cat(acceptance)};
}

}  // namespace

LinearCrossEntropy linear_cross_entropy(const at::Tensor& x, const at::Tensor& w, const at::Tensor& labels_in,
                                        const at::Tensor& weight_in) {
  at::Tensor labels = tensor::beside(labels_in, x), weight = tensor::beside(weight_in, x);
  if (x.size(0) == 0) return {at::zeros({}, x.options().dtype(at::kFloat)), weight, labels, weight};
  LinearSoftCrossEntropy found =  // the entropy travels as what is accepted
      by_blocks(x, w, weight, 1, [&](const at::Tensor& z, int64_t from, bool gradient) -> Judged {
        at::Tensor label = labels.narrow(0, from, z.size(0)).unsqueeze(1), log_p = at::log_softmax(z, 1);
        at::Tensor nll = log_p.gather(1, label).squeeze(1).neg();
        at::Tensor p = log_p.exp(), entropy = (p * log_p.clamp_min(-104)).sum(1).neg();
        if (!gradient) return {nll, entropy, {}};
        return {nll, entropy, p.scatter_add_(1, label, at::full(label.sizes(), -1, z.options()))};
      });
  return {found.loss, found.nll, found.argmax, found.acceptance};
}

LinearSoftCrossEntropy linear_soft_cross_entropy(const at::Tensor& x, const at::Tensor& w, const SoftTeacher& teacher,
                                                 const at::Tensor& weight_in) {
  at::Tensor row_of = tensor::beside(teacher.row_of, x), weight = tensor::beside(weight_in, x);
  if (x.size(0) == 0) return {at::zeros({}, x.options().dtype(at::kFloat)), weight, row_of, weight};
  const at::Tensor states = teacher.states.detach().to(at::kFloat), head = teacher.head.detach().to(at::kFloat);
  at::Tensor all;  // the states' logits, where they are no more than a block's
  if (states.size(0) <= std::min(x.size(0), kBlockBytes / (4 * head.size(0)))) all = at::linear(states, head);
  return by_blocks(x, w, weight, 2, [&](const at::Tensor& z, int64_t from, bool gradient) -> Judged {
    at::Tensor of = row_of.narrow(0, from, z.size(0));
    at::Tensor t = all.defined() ? all.index_select(0, of) : at::linear(states.index_select(0, of), head);
    at::Tensor wanted = at::softmax(t, 1), log_p = at::log_softmax(z, 1), nll = (wanted * log_p).sum(1).neg(), accepts;
    at::Tensor p = log_p.exp_();
    if (teacher.lse.defined()) {
      at::Tensor lse = tensor::beside(teacher.lse.detach().to(at::kFloat), z).index_select(0, of).unsqueeze(1);
      accepts = at::minimum(p, t.sub_(lse).exp_()).sum(1);
    }
    return {nll, accepts, gradient ? p.sub_(wanted) : at::Tensor()};
  });
}

LabelRows nothing_seen(const at::Tensor& x, bool gradient) {
  at::TensorOptions wide = x.options().dtype(at::kFloat).requires_grad(false);
  at::Tensor zero = at::zeros({x.size(0)}, wide);
  LabelRows rows{at::full({x.size(0)}, -INFINITY, wide),        zero, zero,
                 at::zeros({x.size(0)}, wide.dtype(at::kLong)), {},   {}};
  if (gradient) rows.sum = rows.at_labels = at::zeros(x.sizes(), wide);
  return rows;
}

namespace {

at::Tensor logits(const at::Tensor& x, const at::Tensor& rows) {
  return at::linear(x.to(at::kFloat), rows.to(at::kFloat));
}

// Where in the chunk each row's label is, and whether it is there at all; [R, 1] each.
std::pair<at::Tensor, at::Tensor> place_of(const at::Tensor& labels, int64_t first, const at::Tensor& z) {
  at::Tensor at = tensor::beside(labels, z).sub(first).unsqueeze(1);
  return {at.clamp(0, z.size(1) - 1), at.ge(0).logical_and(at.lt(z.size(1)))};
}

}  // namespace

LabelRows see(const LabelRows& before, const at::Tensor& x, const at::Tensor& rows, const at::Tensor& labels,
              int64_t first) {
  at::Tensor z = logits(x, rows), best = z.amax(1), top = at::maximum(before.top, best);
  auto [at, inside] = place_of(labels, first, z);
  const at::Tensor own = z.gather(1, at).squeeze(1), shrink = (before.top - top).exp();
  const at::Tensor e = (z - top.unsqueeze(1)).exp();
  LabelRows now{top,
                before.total * shrink + e.sum(1),
                at::where(inside.squeeze(1), own, before.at_label),
                at::where(best.gt(before.top), z.argmax(1).add(first), before.argmax),
                {},
                {}};
  if (!before.sum.defined()) return now;
  const at::Tensor others = e.scatter_add(1, at, e.gather(1, at).mul(inside).neg()).to(x.scalar_type());
  now.sum = before.sum * shrink.unsqueeze(1) + at::matmul(others.to(at::kFloat), rows.to(at::kFloat));
  now.at_labels = at::where(inside, rows.index_select(0, at.squeeze(1)).to(at::kFloat), before.at_labels);
  return now;
}

at::Tensor nll(const LabelRows& rows) {
  return (rows.total.to(at::kDouble).log() + (rows.top.to(at::kDouble) - rows.at_label)).to(at::kFloat);
}

at::Tensor gradient(const LabelRows& rows, const at::Tensor& upstream) {
  const at::Tensor share = (tensor::beside(upstream, rows.sum) / rows.total).unsqueeze(1);
  return rows.sum * share + rows.at_labels * (share * ((rows.at_label - rows.top).exp() - rows.total).unsqueeze(1));
}

}  // namespace sf::ops::plain
