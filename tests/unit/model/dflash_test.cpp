// SPDX-License-Identifier: Apache-2.0
#include "model/dflash.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "dflash_formula.h"

namespace sf::model {
namespace {

using test::expect_equal;
using test::Formula;
using test::run_segments;
using test::Toy;
using test::toy_draft;

Tensors run_chain(const Toy& toy, Tensors& parameters, const DflashOptions& options = {}) {
  return run_segments(toy, parameters, dflash_segments(toy.draft, false, options));
}

TEST(Dflash, LossAndGradientsEqualTheFormulaInFp64) {
  for (const std::vector<int64_t>& windows : {std::vector<int64_t>{}, {3, 0}, {2, 4}}) {
    Toy toy;
    toy.draft.windows = windows;
    Tensors parameters, out = run_chain(toy, parameters);
    expect_equal(toy, parameters, out.at("loss"), Formula(toy).loss());
  }
}

TEST(Dflash, ASlotsNeighboursDecideItsWeightAsDpaceHasIt) {
  // One block of four slots with labels at 1 and 3 only, p = 1/2 and 1/8; one with a label at 2, p = 1/4.
  std::vector<int64_t> slots{1, 3, 6};
  std::vector<float> nll{std::log(2.f), std::log(8.f), std::log(4.f)};
  double first = 0.75 * 0.5 + 0.25, second = first * (0.75 * 0.125 + 0.25), other = 0.75 * 0.25 + 0.25;
  auto weights = [&](SlotLoss loss) { return dpace_weights({.loss = loss, .dpace_alpha = 0.25}, 4, slots, nll); };
  auto expect = [&](SlotLoss loss, std::vector<double> wanted) {
    std::vector<double> found = weights(loss);
    for (size_t n = 0; n < 3; ++n) EXPECT_NEAR(found[n], wanted[n], 1e-7);
  };
  expect(SlotLoss::kPlain, {1, 1, 1});
  expect(SlotLoss::kDpacePrefix, {first, second, other});
  expect(SlotLoss::kDpace, {first + second, second, other});
  expect(SlotLoss::kDpaceSuffixOverPrefix, {(first + second) / first, 1, 1});
}

TEST(Dflash, ABlockOfNextTokensEndsAtItsFirstSlotWithoutALabel) {
  Toy toy;
  DflashBlocks all = dflash_blocks(toy.batch, toy.draft, {.next = true});
  EXPECT_EQ(all.label_offsets, (std::vector<int64_t>{0, 1, 3, 0, 2, 3, 0, 0, 2, 3}));
  DflashBlocks ended = dflash_blocks(toy.batch, toy.draft, {.next = true, .contiguous = true});
  EXPECT_EQ(ended.label_offsets, (std::vector<int64_t>{0, 1, 0, 0, 0}));
  EXPECT_EQ(std::vector<int64_t>(ended.token_ids.begin(), ended.token_ids.begin() + 4),
            (std::vector<int64_t>{14, 2, 9, 16}));
}

TEST(Dflash, LabelsAreTheSupervisedTokensOfABlockThatLieInTheRow) {
  Toy toy;
  DflashBlocks found = dflash_blocks(toy.batch, toy.draft);
  EXPECT_EQ(found.blocks.size(), 4U);
  // anchor 2: 3 4 (5 is masked out), anchor 3: 4 6, anchor 7: 8, second row anchor 1: 2, 4
  EXPECT_EQ(found.label_offsets, (std::vector<int64_t>{1, 2, 1, 3, 1, 1, 3}));
  EXPECT_EQ(found.context_rows.size(), 7U + 1U);
}

TEST(Dflash, ARowsSumsDoNotDependOnItsNeighbours) {
  Toy both, alone;
  for (const char* name : {"input_ids", "loss_mask", "lengths", "anchors", "hidden_states"})
    alone.batch[name] = both.batch[name].narrow(0, 1, 1);
  Tensors first, second, out = run_chain(both, first), one = run_chain(alone, second);
  EXPECT_TRUE(out.at("nll").narrow(0, 5, 2).equal(one.at("nll")));
}

TEST(Dflash, WhatCannotBeTrainedIsRefusedByName) {
  for (const char* word : {"mask_token_id", "target_layer_ids"}) {
    arch::Dflash draft = toy_draft();
    if (std::string_view(word) == "mask_token_id") draft.mask_token = -1;
    if (std::string_view(word) == "target_layer_ids") draft.capture_layers.clear();
    try {
      dflash_segments(draft, false);
      FAIL() << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::kConfig);
      EXPECT_NE(error.message().find(word), std::string::npos) << error.message();
    }
  }
}

}  // namespace
}  // namespace sf::model
