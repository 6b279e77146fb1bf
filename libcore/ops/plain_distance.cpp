// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cstddef>

#include "ops/plain.h"
#include "ops/recompute.h"
#include "tensor/device.h"

namespace sf::ops::plain {
namespace {

constexpr int64_t kSlice = 128;  // rows whose logits live at a time

using Tensors = std::vector<at::Tensor>;

// rows: x of each part, labels, both weights and, where there is a teacher, its states; tables: w of each part.
// -> losses, and the columns nll, l1, top, teacher_top, argmax, teacher_argmax.
Tensors judge(const Tensors& rows, const Tensors& tables) {
  const size_t parts = tables.size();
  at::Tensor z = at::linear(rows[0], tables[0]).to(at::kFloat);
  for (size_t i = 1; i < parts; ++i) z = z + at::linear(rows[i], tables[i]).to(at::kFloat);
  const at::Tensor log_p = at::log_softmax(z, 1), p = log_p.exp();
  const at::Tensor nll = log_p.gather(1, rows[parts].unsqueeze(1)).squeeze(1).neg();
  at::Tensor l1 = nll.detach() * 0, teacher_top = l1, teacher_best = l1;
  if (rows.size() > parts + 3) {
    const at::Tensor q = at::softmax(at::linear(rows.back(), tables[0]).to(at::kFloat), 1).detach();
    l1 = (p - q).abs().sum(1), teacher_top = q.amax(1), teacher_best = q.argmax(1).to(at::kFloat);
  }
  const at::Tensor found =
      at::stack({nll, l1, p.amax(1), teacher_top, z.argmax(1).to(at::kFloat), teacher_best}, 1).detach();
  return {rows[parts + 1] * nll + rows[parts + 2] * l1, found};
}

}  // namespace

LinearDistance linear_distance(const std::vector<LogitPart>& parts, const DistanceJudge& by) {
  Tensors rows, tables, losses, found;
  for (const LogitPart& part : parts) rows.push_back(part.x), tables.push_back(part.w);
  for (const at::Tensor& each : {by.labels, by.nll_weight, by.l1_weight})
    rows.push_back(tensor::beside(each, parts[0].x));
  if (by.states.defined()) rows.push_back(by.states);
  const auto cut = static_cast<std::ptrdiff_t>(rows.size());
  for (int64_t lo = 0; lo < rows[0].size(0); lo += kSlice) {
    Tensors inputs;
    for (const at::Tensor& each : rows) inputs.push_back(each.narrow(0, lo, std::min(kSlice, each.size(0) - lo)));
    inputs.insert(inputs.end(), tables.begin(), tables.end());
    const Tensors out = recompute(
        [cut](const Tensors& given) {
          return judge({given.begin(), given.begin() + cut}, {given.begin() + cut, given.end()});
        },
        inputs);
    losses.push_back(out[0]), found.push_back(out[1]);
  }
  const at::Tensor all = tensor::on_host(at::cat(found));
  auto column = [&](int64_t n) { return all.select(1, n).contiguous(); };
  return {at::cat(losses).sum(),  column(0), column(1), column(2), column(3), column(4).to(at::kLong),
          column(5).to(at::kLong)};
}

}  // namespace sf::ops::plain
