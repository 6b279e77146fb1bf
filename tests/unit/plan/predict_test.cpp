// SPDX-License-Identifier: Apache-2.0
#include "plan/predict.h"

#include <gtest/gtest.h>

namespace sf::plan {
namespace {

// Two groups: "a" trains 8 x 4, "b" holds a frozen 6 x 4 and trains 4.
Schedule toy(int world, bool whole_table = false) {
  arch::ModelSpec spec;
  spec.parameters = {{"w", {8, 4}, true, ""}, {"table", {6, 4}, false, ""}, {"v", {4}, true, ""}};
  std::vector<arch::Segment> segments = {{"a", {"w"}, {"x"}, {"h"}, 0}, {"b", {"table", "v"}, {"h"}, {"loss"}, 0}};
  ScheduleOptions options;
  options.world = world;
  if (whole_table) options.replicated = {"table"};
  return make_schedule(spec, segments, options);
}

TEST(Predict, AtRestIsTheEnginesMemoryAndWhatElseStays) {
  Schedule plan = toy(2);
  Load load{.micro_batches = 4, .constant_bytes = 640, .sampler_bytes = 5000};
  EXPECT_EQ(totals_of(plan, load, 1).at_rest, plan.memory[1].total() + 640 + 5000);
}

TEST(Predict, APeakHoldsTheMicroBatchesOfTheRanksWindow) {
  Schedule plan = toy(2);
  Load load{.micro_batches = 3, .input_bytes = 100, .work_bytes = 7};
  for (int rank : {0, 1}) {
    Totals totals = totals_of(plan, load, rank);
    EXPECT_EQ(totals.peak - totals.at_rest, (rank == 0 ? 200U : 100U) + 7) << rank;
  }
}

TEST(Predict, ARankWithoutAMicroBatchComputesNothing) {
  Schedule plan = toy(4);
  Totals totals = totals_of(plan, {.micro_batches = 2, .input_bytes = 100, .work_bytes = 7}, 3);
  EXPECT_EQ(totals.peak, totals.at_rest);
}

TEST(Predict, EveryRankHoldsACopyOfItsPartWhileACheckpointIsWritten) {
  Schedule plan = toy(2);
  EXPECT_EQ(checkpoint_bytes(plan, 0) + checkpoint_bytes(plan, 1), 3 * sizeof(float) * 36);
  for (int rank : {0, 1}) {
    Totals totals = totals_of(plan, {.micro_batches = 2, .input_bytes = 64, .sample_bytes = 10}, rank);
    EXPECT_EQ(totals.host, 10 + checkpoint_bytes(plan, rank));
    EXPECT_EQ(totals.resident, totals.peak + totals.host);
  }
}

TEST(Predict, ARunThatEndsBeforeACheckpointIsDueMakesNoCopyOfIt) {
  Schedule plan = toy(2);
  Load load{.micro_batches = 2, .sample_bytes = 10, .copies = false};
  EXPECT_EQ(totals_of(plan, load, 0).host, 10u);
  EXPECT_EQ(totals_of(plan, load, 0).resident, totals_of(plan, load, 0).peak + 10);
}

TEST(Predict, WhatAHostKeepsOnceIsShared) {
  Schedule plan = toy(2);
  plan.memory[1].host = 101;
  Load load{.micro_batches = 2, .sample_bytes = 10};
  EXPECT_EQ(totals_of(plan, load, 1).host, 10 + 51 + checkpoint_bytes(plan, 1));
  load.ranks_here = 1;
  EXPECT_EQ(totals_of(plan, load, 1).resident, totals_of(plan, load, 1).peak + 111 + checkpoint_bytes(plan, 1));
}

TEST(Predict, OneRankReceivesNothing) {
  Traffic traffic = traffic_of(toy(1), {.micro_batches = 8}, 0);
  EXPECT_EQ(traffic.bytes(), 0U);
}

TEST(Predict, ARoundReceivesTheOthersIntervalsAndTheirGradients) {
  Schedule plan = toy(2);
  // Gathers of a and b once each (both fit the arena at the turn: b stays, a comes again), folds of both.
  Traffic traffic = traffic_of(plan, {.micro_batches = 2}, 0);
  uint64_t a = 16 * sizeof(float), b = (12 + 2) * sizeof(float);
  uint64_t gathers_of_a = 1 + (plan.gathers(0, true) ? 1 : 0);
  EXPECT_EQ(traffic.gather_bytes, gathers_of_a * a + b);
  EXPECT_EQ(traffic.fold_bytes, (16 + 2) * sizeof(float));  // rank 1's gradient of rank 0's elements
  EXPECT_EQ(traffic.folds, 2U);
}

TEST(Predict, AnAbsentRankSendsNoGradient) {
  Traffic full = traffic_of(toy(2), {.micro_batches = 2}, 0), half = traffic_of(toy(2), {.micro_batches = 1}, 0);
  EXPECT_GT(full.fold_bytes, 0U);
  EXPECT_EQ(half.fold_bytes, 0U);
}

TEST(Predict, ATableHeldWholeIsNotReceived) {
  Traffic shard = traffic_of(toy(2), {.micro_batches = 2}, 0),
          whole = traffic_of(toy(2, true), {.micro_batches = 2}, 0);
  EXPECT_EQ(shard.gather_bytes - whole.gather_bytes, 12 * sizeof(float));
}

TEST(Predict, RankZeroWritesTheCheckpointsAndOneMoreMeanwhile) {
  Schedule plan = toy(2);
  Load load{.checkpoints = 2};
  EXPECT_EQ(totals_of(plan, load, 0).disk, 3U * 3 * sizeof(float) * 36);
  EXPECT_EQ(totals_of(plan, load, 1).disk, 0U);
}

}  // namespace
}  // namespace sf::plan
