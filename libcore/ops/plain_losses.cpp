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

#include <algorithm>
#include <cmath>

#include "ops/plain.h"
#include "ops/recompute.h"
#include "tensor/device.h"

namespace sf::ops::plain {

namespace {

constexpr int64_t kBlockBytes = int64_t{256} << 20;  // of logits

// {loss F64 [1], nll, argmax} of some rows.
std::vector<at::Tensor> block_loss(const at::Tensor& x, const at::Tensor& w, const at::Tensor& labels,
                                   const at::Tensor& weight) {
  at::Tensor z = at::linear(x.to(at::kFloat), w.to(at::kFloat));
  at::Tensor nll = at::log_softmax(z, 1).gather(1, labels.unsqueeze(1)).squeeze(1).neg();
  at::Tensor loss = (nll * weight).to(at::kDouble).sum().view({1}), seen = nll.detach() * weight.ne(0);
  return {loss, seen, z.detach().argmax(1)};
}

}  // namespace

LinearCrossEntropy linear_cross_entropy(const at::Tensor& x, const at::Tensor& w, const at::Tensor& labels_in,
                                        const at::Tensor& weight_in) {
  at::Tensor labels = tensor::beside(labels_in, x), weight = tensor::beside(weight_in, x);
  int64_t block = std::max<int64_t>(1, kBlockBytes / (4 * w.size(0)));
  std::vector<at::Tensor> losses, nll, argmax;
  for (int64_t lo = 0; lo < x.size(0); lo += block) {
    int64_t count = std::min(block, x.size(0) - lo);
    auto body = [label = labels.narrow(0, lo, count), own = weight.narrow(0, lo, count)](
                    const std::vector<at::Tensor>& given) { return block_loss(given[0], given[1], label, own); };
    std::vector<at::Tensor> found = recompute(body, {x.narrow(0, lo, count), w});
    losses.push_back(found[0]), nll.push_back(found[1].detach()), argmax.push_back(found[2]);
  }
  if (losses.empty()) return {at::zeros({}, x.options().dtype(at::kFloat)), weight, labels};
  return {at::cat(losses).sum().to(at::kFloat), at::cat(nll), at::cat(argmax)};
}

namespace {

// {loss F64 [1], nll, argmax, acceptance (where an lse is given)} of some rows.
std::vector<at::Tensor> soft_block_loss(const at::Tensor& x, const at::Tensor& w, const SoftTeacher& teacher,
                                        const at::Tensor& row_of, const at::Tensor& weight) {
  at::Tensor z = at::linear(x.to(at::kFloat), w.to(at::kFloat)), seen = z.detach(), counts = weight.ne(0);
  at::Tensor states = teacher.states.detach().index_select(0, row_of);
  at::Tensor t = at::linear(states.to(at::kFloat), teacher.head.detach().to(at::kFloat));
  at::Tensor nll = (at::softmax(t, 1) * at::log_softmax(z, 1)).sum(1).neg();
  std::vector<at::Tensor> out{(nll * weight).to(at::kDouble).sum().view({1}), nll.detach() * counts, seen.argmax(1)};
  if (!teacher.lse.defined()) return out;
  at::Tensor lse = tensor::beside(teacher.lse.detach().to(at::kFloat), z).index_select(0, row_of).unsqueeze(1);
  out.push_back(at::minimum(at::softmax(seen, 1), (t - lse).exp()).sum(1) * counts);
  return out;
}

}  // namespace

LinearSoftCrossEntropy linear_soft_cross_entropy(const at::Tensor& x, const at::Tensor& w, const SoftTeacher& teacher,
                                                 const at::Tensor& weight_in) {
  at::Tensor row_of = tensor::beside(teacher.row_of, x), weight = tensor::beside(weight_in, x);
  int64_t block = std::max<int64_t>(1, kBlockBytes / (8 * w.size(0)));
  std::vector<std::vector<at::Tensor>> parts(4);
  for (int64_t lo = 0; lo < x.size(0); lo += block) {
    int64_t count = std::min(block, x.size(0) - lo);
    auto body = [teacher, of = row_of.narrow(0, lo, count),
                 own = weight.narrow(0, lo, count)](const std::vector<at::Tensor>& given) {
      return soft_block_loss(given[0], given[1], teacher, of, own);
    };
    std::vector<at::Tensor> found = recompute(body, {x.narrow(0, lo, count), w});
    for (size_t i = 0; i < found.size(); ++i) parts[i].push_back(i == 0 ? found[i] : found[i].detach());
  }
  if (parts[0].empty()) return {at::zeros({}, x.options().dtype(at::kFloat)), weight, row_of, weight};
  return {at::cat(parts[0]).sum().to(at::kFloat), at::cat(parts[1]), at::cat(parts[2]),
          parts[3].empty() ? at::Tensor() : at::cat(parts[3])};
}

LabelRows nothing_seen(const at::Tensor& x) {
  at::TensorOptions wide = x.options().dtype(at::kFloat).requires_grad(false);
  at::Tensor zero = at::zeros({x.size(0)}, wide);
  return {at::full({x.size(0)}, -INFINITY, wide), zero, zero, at::zeros({x.size(0)}, wide.dtype(at::kLong))};
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
  at::Tensor own = z.gather(1, at).squeeze(1);
  return {top, before.total * (before.top - top).exp() + (z - top.unsqueeze(1)).exp().sum(1),
          at::where(inside.squeeze(1), own, before.at_label),
          at::where(best.gt(before.top), z.argmax(1).add(first), before.argmax)};
}

at::Tensor nll(const LabelRows& rows) {
  return (rows.total.to(at::kDouble).log() + (rows.top.to(at::kDouble) - rows.at_label)).to(at::kFloat);
}

at::Tensor label_gradient(const LabelRows& seen, const at::Tensor& x, const at::Tensor& rows, const at::Tensor& labels,
                          int64_t first, const at::Tensor& upstream) {
  at::Tensor z = logits(x, rows);
  auto [at, inside] = place_of(labels, first, z);
  at::Tensor p = (z - seen.top.unsqueeze(1)).exp() / seen.total.unsqueeze(1);
  at::Tensor g = p.scatter_add(1, at, inside.to(at::kFloat).neg()) * tensor::beside(upstream, x).unsqueeze(1);
  return at::matmul(g.to(x.scalar_type()).to(at::kFloat), rows.to(at::kFloat));
}

}  // namespace sf::ops::plain
