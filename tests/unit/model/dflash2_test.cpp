// SPDX-License-Identifier: Apache-2.0
#include "model/dflash2.h"

#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/topk.h>
#include <gtest/gtest.h>

#include "dflash_formula.h"

namespace sf::model {
namespace {

using test::Formula;
using test::Toy;

arch::Dflash2 toy_draft2() {
  arch::Dflash2 d;
  static_cast<arch::Dflash&>(d) = test::toy_draft();
  d.taps = 3, d.group = 4, d.rank = 5, d.top_k = 6, d.embedding_scale = 1.5, d.output_multiplier = 2, d.softcap = 3;
  return d;
}

// The convolution, one term after the other.
at::Tensor filter(const Toy& toy, const arch::Dflash2& d, const std::string& module, const at::Tensor& x, int64_t side,
                  const at::Tensor& y) {
  at::Tensor base = toy.weights.at(module + "base_kernel"), out = at::zeros(y.sizes(), at::kDouble);
  at::Tensor added = at::linear(x, toy.weights.at(module + "kernel_projection.weight"));
  int64_t groups = d.hidden / d.group;
  std::vector<at::Tensor> rows;
  for (int64_t i = 0; i < y.size(0); ++i) {
    at::Tensor row = at::zeros({d.hidden}, at::kDouble);
    for (int64_t t = 0; t < d.taps && t <= i % d.block; ++t) {
      at::Tensor own = added[i].narrow(0, (side * d.taps + t) * groups, groups).repeat_interleave(d.group);
      row = row + (base[side][t] + own) * y[i - t];
    }
    rows.push_back(row);
  }
  return at::stack(rows);
}

at::Tensor formula(const Toy& toy, const arch::Dflash2& d, double share) {
  Formula f(toy, [&](const std::string& module, const at::Tensor& x, const auto& sublayer) {
    return filter(toy, d, module, x, 1, sublayer(filter(toy, d, module, x, 0, x)));
  });
  auto weight = [&](const char* name) { return toy.weights.at(std::string("candidate_selector.") + name); };
  at::Tensor total = at::zeros({}, at::kDouble);
  for (const Formula::Label& label : f.labels()) {
    int64_t gold = f.token(label.row, label.at), before = f.token(label.row, label.at - 1);
    at::Tensor z = at::tanh(f.logits(label) * d.output_multiplier / d.softcap) * d.softcap;
    at::Tensor loss = at::logsumexp(z, 0) - z[gold];
    at::Tensor query =
        weight("predecessor_codebook")[before] * at::linear(label.state, weight("hidden_projection.weight"));
    at::Tensor scores = z + at::linear(query, weight("successor_codebook"));
    at::Tensor ids = std::get<1>(at::topk(z, d.top_k));
    if (ids.eq(gold).any().item<bool>())
      loss = loss + share * (at::logsumexp(scores.index_select(0, ids), 0) - scores[gold]);
    total = total + loss * toy.batch.at("slot_weights")[label.slot];
  }
  return total;
}

TEST(Dflash2, LossAndGradientsEqualTheFormulaInFp64) {
  arch::Dflash2 draft = toy_draft2();
  Toy toy(draft, arch::describe_training(draft, false));
  // The formula has no scale: its embedding is the scaled one.
  Toy scaled = toy;
  scaled.weights[arch::kTargetEmbedding] = toy.weights.at(arch::kTargetEmbedding) * draft.embedding_scale;
  toy.batch["selector_share"] = at::full({}, 0.75, at::kDouble);
  Tensors parameters, out = test::run_segments(toy, parameters, dflash2_segments(draft, false, {.slice = 3}));
  // Two filters around each sublayer, and logits twice as large, add to what the formula's bound allows.
  test::expect_equal(toy, parameters, out.at("loss"), formula(scaled, draft, 0.75), 6e-6);
  EXPECT_GT(out.at("slot_sums").sum({0})[kPresent].item<double>(), 0);
  EXPECT_LT(out.at("slot_sums").sum({0})[kPresent].item<double>(), 7);  // both kinds of labels occur
}

TEST(Dflash2, ASelectorThatStopsTheGradientChangesItselfAlone) {
  arch::Dflash2 draft = toy_draft2();
  Toy toy(draft, arch::describe_training(draft, false));
  auto gradient = [&](double share) {
    toy.batch["selector_share"] = at::full({}, share, at::kDouble);
    Tensors parameters,
        out = test::run_segments(toy, parameters,
                                 dflash2_segments(draft, false, {.selector_stop_gradient = true, .slice = 3}));
    return torch::autograd::grad({out.at("loss")}, {parameters.at("fc.weight")})[0];
  };
  EXPECT_TRUE(gradient(0).equal(gradient(1)));
}

}  // namespace
}  // namespace sf::model
