// SPDX-License-Identifier: Apache-2.0
#include "model/peagle.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"
#include "base/rng.h"
#include "chain.h"
#include "tensor/threads.h"

namespace sf::model {
namespace {

arch::Peagle toy_draft() {
  arch::Peagle d;
  d.vocab = 20, d.draft_vocab = 12, d.hidden = 8, d.target_hidden = 8, d.intermediate = 10, d.layers = 2;
  d.heads = 2, d.kv_heads = 1, d.head_dim = 4, d.max_positions = 64, d.mask_token = 19, d.rope.theta = 100;
  return d;
}

at::Tensor random(const std::string& name, std::vector<int64_t> shape, double middle = 0, double spread = 0.4) {
  Rng rng(23, name);
  at::Tensor made = at::zeros(shape, at::kFloat);
  for (int64_t i = 0; i < made.numel(); ++i)
    made.mutable_data_ptr<float>()[i] = static_cast<float>(middle + spread * rng.normal(0, static_cast<uint64_t>(i)));
  return made;
}

struct Toy {
  arch::Peagle draft = toy_draft();
  Eagle3Vocabulary vocabulary{at::arange(20, at::kLong).lt(12), at::zeros({12}, at::kLong)};
  Tensors weights, batch;

  Toy() {
    tensor::set_threads(1);
    for (const arch::Parameter& p : arch::describe_training(draft).parameters)
      weights[p.name] = random(p.name, p.shape, p.name.ends_with("norm.weight") ? 1 : 0).set_requires_grad(p.trainable);
    batch["input_ids"] = at::arange(2 * 7, at::kLong).mul(5).remainder(17).view({2, 7});
    batch["loss_mask"] = at::tensor({0, 0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0}, at::kLong).view({2, 7});
    batch["lengths"] = at::tensor({7, 5}, at::kLong);
    batch["cod_anchors"] = at::tensor({1, 2, 4, 2, 0, 1, 2, -1}, at::kLong).view({2, 4});
    batch["cod_depths"] = at::tensor({1, 1, 1, 2, 1, 1, 1, -1}, at::kLong).view({2, 4});
    batch["hidden_state"] = random("states", {2, 7, 24}, 0, 1);
    batch["final_norm"] = random("teacher", {2, 7, 8}, 0, 1);
    batch["target_top1"] = at::arange(2 * 7, at::kLong).mul(3).remainder(14).view({2, 7});
    batch["target_lse"] = random("lse", {2, 7}, 4, 0.1);
    batch["label_weight"] = at::full({}, 0.125, at::kFloat);
  }
  Tensors run(const Tensors& given) const {
    return run_chain(peagle_segments(draft, vocabulary, {.depths = 3}), weights, given);
  }
};

TEST(Peagle, ALabelIsSupervisedByTheMaskOfItsOwnToken) {
  Toy toy;
  PeagleRows rows = peagle_rows(toy.batch, toy.draft, toy.vocabulary, {.depths = 3});
  ASSERT_EQ(rows.rows.size(), 7U + 4 + 5 + 3);
  EXPECT_EQ(rows.token_ids[0], 5);   // x[1]
  EXPECT_EQ(rows.token_ids[6], 0);   // beyond the end
  EXPECT_EQ(rows.token_ids[7], 19);  // the mask
  // Depth 0 of the first row: indices 1 to 5, whose next tokens are supervised; the teacher at 4 chooses 12 and is out.
  EXPECT_EQ(std::vector<int64_t>(rows.label_rows.begin(), rows.label_rows.begin() + 4),
            (std::vector<int64_t>{1, 2, 4, 5}));
  EXPECT_EQ(std::vector<int64_t>(rows.teacher_rows.begin(), rows.teacher_rows.begin() + 4),
            (std::vector<int64_t>{2, 3, 5, 6}));
  PeagleRows quirk = peagle_rows(toy.batch, toy.draft, toy.vocabulary, {.depths = 3, .reference_quirks = true});
  EXPECT_EQ(quirk.label_rows[0], 2);
  EXPECT_EQ(quirk.teacher_rows[3], -1);  // the last index counts, its teacher is unknown
}

TEST(Peagle, ARowsLossDoesNotDependOnItsNeighboursAndPadding) {
  Toy toy;
  Tensors alone[2];
  for (int64_t b = 0; b < 2; ++b)
    for (const auto& [name, value] : toy.batch) alone[b][name] = value.dim() == 0 ? value : value.narrow(0, b, 1);
  at::Tensor both = toy.run(toy.batch).at("loss"), one = toy.run(alone[0]).at("loss"),
             two = toy.run(alone[1]).at("loss");
  EXPECT_NEAR(both.item<double>(), one.item<double>() + two.item<double>(), 1e-6);  // another order of the sum
}

// What a row may attend to, shown by what its loss depends on.
TEST(Peagle, ARowSeesDepthZeroUpToItsAnchorAndItsOwnAnchorsRows) {
  Toy toy;
  Tensors given = toy.batch;
  given["hidden_state"] = toy.batch["hidden_state"].clone().set_requires_grad(true);
  for (const char* name : {"input_ids", "loss_mask", "lengths", "hidden_state", "final_norm", "target_top1",
                           "target_lse", "cod_anchors", "cod_depths"})
    given[name] = given[name].narrow(0, 0, 1);
  Tensors out = toy.run(given);
  at::Tensor last = out.at("hidden.2");  // depth 0: 0 to 6; depth 1: anchors 1 2 4; depth 2: anchor 2
  auto reads = [&](int64_t row) {
    at::Tensor g = torch::autograd::grad({last[row].sum()}, {given["hidden_state"]}, {}, true)[0];
    return g[0].abs().sum(1).gt(0).to(at::kLong);
  };
  EXPECT_TRUE(reads(3).equal(at::tensor({1, 1, 1, 1, 0, 0, 0}, at::kLong)));
  EXPECT_TRUE(reads(8).equal(at::tensor({1, 1, 1, 0, 0, 0, 0}, at::kLong)));
  EXPECT_TRUE(reads(10).equal(at::tensor({1, 1, 1, 0, 0, 0, 0}, at::kLong)));
}

TEST(Peagle, RowsOutOfOrderAreRefused) {
  Toy toy;
  toy.batch["cod_depths"][0][3] = 3;
  EXPECT_THROW(peagle_rows(toy.batch, toy.draft, toy.vocabulary, {.depths = 4}), Error);
  Toy other;
  other.batch["cod_anchors"][0][3] = 3;  // depth 1 has no anchor 3
  EXPECT_THROW(peagle_rows(other.batch, other.draft, other.vocabulary, {.depths = 4}), Error);
}

}  // namespace
}  // namespace sf::model
