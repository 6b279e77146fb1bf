// SPDX-License-Identifier: Apache-2.0
// One divisor a window, whatever its split: the objectives of drafts of blocks.
#include "train/slots.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "train/dflash2.h"
#include "train/domino.h"
#include "train/dspark.h"

namespace sf::train {
namespace {

arch::Domino toy() {
  arch::Domino d;
  d.vocab = 50, d.block = 3, d.mask_token = 49;
  return d;
}

// A row of ten supervised tokens with these anchors.
model::Tensors batch(std::vector<int64_t> anchors) {
  at::Tensor ids = at::tensor({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, at::kLong).view({1, 10});
  return {{"input_ids", ids},
          {"loss_mask", ids.ge(0).to(at::kLong)},
          {"lengths", at::tensor({10}, at::kLong)},
          {"anchors", at::tensor(anchors, at::kLong).view({1, -1})}};
}

std::vector<int64_t> sum(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  std::vector<int64_t> all = a;
  for (size_t i = 0; i < a.size(); ++i) all[i] += b[i];
  return all;
}

TEST(Slots, RaggedMicroBatchesShareOneDivisor) {
  DominoObjective objective(toy(), {1, 0.5}, 4, false);
  model::Tensors few = batch({8}), many = batch({1, 2, 3});  // 1 and 9 labels
  std::vector<int64_t> counts = sum(objective.counts(few), objective.counts(many));
  double weights[3] = {1, std::exp(-0.25), std::exp(-0.5)};
  double divisor = 4 * weights[0] + 3 * weights[1] + 3 * weights[2];
  for (model::Tensors* micro_batch : {&few, &many}) {
    objective.weigh(*micro_batch, {counts, 0, 10});
    for (int64_t k = 0; k < 3; ++k)
      EXPECT_NEAR((*micro_batch)["slot_weights"][k].item<double>(), weights[k] / divisor, 1e-7);
  }
}

TEST(Slots, UnderTheQuirkEachMicroBatchIsAMeanOfItsOwn) {
  DominoObjective objective(toy(), {1, 0.5}, 0, true);
  model::Tensors few = batch({8}), many = batch({1, 2, 3});
  std::vector<int64_t> counts = sum(objective.counts(few), objective.counts(many));
  objective.weigh(few, {counts});
  objective.weigh(many, {counts});
  EXPECT_NEAR(few["slot_weights"][0].item<double>(), 1 / (2 * (1 + 1e-6)), 1e-7);
  EXPECT_NEAR(many["slot_weights"][0].item<double>(), 1 / (2 * (9 + 1e-6)), 1e-7);
}

TEST(Slots, AMicroBatchWithoutALabelTrainsNothingAndCountsNoLabel) {
  DominoObjective objective(toy(), {1, 0.5}, 0, false);
  std::vector<int64_t> none = objective.counts(batch({-1}));
  EXPECT_FALSE(objective.trains(none));
  EXPECT_TRUE(objective.trains(sum(none, objective.counts(batch({1})))));
}

TEST(Shares, FallAndRiseOverTheSchedule) {
  BaseShare base{0.8, 0.5};
  EXPECT_DOUBLE_EQ(base.at(0, 100), 0.8);
  EXPECT_DOUBLE_EQ(base.at(25, 100), 0.4);
  EXPECT_DOUBLE_EQ(base.at(50, 100), 0);
  EXPECT_DOUBLE_EQ(base.at(99, 100), 0);
  SelectorShare selector{2, 0.1, 0.2};
  EXPECT_DOUBLE_EQ(selector.at(9, 100), 0);
  EXPECT_DOUBLE_EQ(selector.at(20, 100), 1);
  EXPECT_DOUBLE_EQ(selector.at(30, 100), 2);
  EXPECT_DOUBLE_EQ((SelectorShare{2, 0, 0}).at(0, 100), 2);
}

}  // namespace
}  // namespace sf::train
