// SPDX-License-Identifier: Apache-2.0
#include "train/loop.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tensor/compare.h"
#include "toy.h"

namespace sf::train {
namespace {

namespace fs = std::filesystem;
using test::run_toy;
using test::ToyPlan;
using test::ToyRun;

struct RunDir {
  fs::path path;
  RunDir() {
    static std::atomic<int> next = 0;
    path = fs::temp_directory_path() / ("sf-train-" + std::to_string(getpid()) + "-" + std::to_string(next++));
    fs::create_directories(path);
  }
  ~RunDir() { fs::remove_all(path); }
};

void expect_equal(const ToyRun& found, const ToyRun& wanted, const std::string& what) {
  for (const auto& [name, weight] : wanted.weights)
    EXPECT_EQ(tensor::first_difference(found.weights.at(name), weight), std::nullopt) << what << ": " << name;
  EXPECT_EQ(found.end.progress, wanted.end.progress) << what;
}

TEST(Loop, LossesAndWeightsAreEqualBitsForEveryWorldSize) {
  std::vector<ToyRun> runs;
  for (int world : {1, 2, 3, 4}) {
    RunDir dir;
    runs.push_back(run_toy({world, dir.path}));
    ASSERT_EQ(runs.back().end.exit, Exit::kOk);
    EXPECT_EQ(runs.back().record.values, runs.front().record.values) << world << " ranks";
    expect_equal(runs.back(), runs.front(), std::to_string(world) + " ranks");
  }
  EXPECT_EQ(runs[0].record.values.at("loss").size(), 5u);
}

TEST(Loop, TheLossFalls) {
  RunDir dir;
  ToyPlan plan{2, dir.path, {1, 10, 150}, 15};
  plan.rate = 3e-2;
  ToyRun run = run_toy(plan);
  const auto& loss = run.record.values.at("loss");
  EXPECT_LT(loss.back(), 0.9 * loss.front());
  EXPECT_EQ(run.end.progress.updates, 15);
}

TEST(Loop, AStoppedRunContinuesToTheSameBits) {
  RunDir whole, parts;
  ToyRun uninterrupted = run_toy({2, whole.path});
  ToyPlan plan{2, parts.path};
  plan.stop_at = 2;
  ToyRun first = run_toy(plan);
  EXPECT_EQ(first.exits, (std::vector<Exit>{Exit::kAgain, Exit::kAgain}));
  EXPECT_EQ(first.end.progress.step, 2);
  EXPECT_EQ(first.end.checkpoint.filename(), "step-2");
  EXPECT_TRUE(first.finished);
  plan.stop_at = -1, plan.resume = true;
  ToyRun second = run_toy(plan);
  expect_equal(second, uninterrupted, "2 ranks");
  for (const auto& [name, values] : uninterrupted.record.values) {
    auto joined = first.record.values[name];
    joined.insert(joined.end(), second.record.values[name].begin(), second.record.values[name].end());
    EXPECT_EQ(joined, values) << name;
  }
}

TEST(Loop, AnotherWorldSizeAndLayoutContinuesToTheSameBits) {
  RunDir whole, parts;
  ToyRun uninterrupted = run_toy({2, whole.path});
  ToyPlan plan{2, parts.path};
  plan.stop_at = 3;
  run_toy(plan);
  plan.stop_at = -1, plan.resume = true, plan.world = 1;
  expect_equal(run_toy(plan), uninterrupted, "2 to 1 ranks");
  fs::remove_all(parts.path / "step-5");
  plan.world = 3, plan.layout = plan::Layout::kFlat;
  expect_equal(run_toy(plan), uninterrupted, "2 to 3 ranks, flat");
}

TEST(Loop, ReplicasSaveAndContinueTheBitsOfAnyOtherLayout) {
  RunDir whole, parts;
  ToyRun uninterrupted = run_toy({1, whole.path});
  ToyPlan plan{4, parts.path};
  plan.replicas = 2, plan.stop_at = 1;
  run_toy(plan);
  plan.resume = true;
  plan.world = 2, plan.replicas = 1, plan.layout = plan::Layout::kReplicate, plan.stop_at = 2;
  run_toy(plan);  // steps 2 and 3, as whole copies
  plan.world = 3, plan.layout = plan::Layout::kFlat, plan.stop_at = -1;
  expect_equal(run_toy(plan), uninterrupted, "mesh, copies, flat");
}

TEST(Loop, ALateStopOfAFinishedRunChangesNothing) {
  RunDir dir;
  ToyPlan plan{1, dir.path};
  ToyRun done = run_toy(plan);
  plan.resume = true;
  ToyRun again = run_toy(plan);
  EXPECT_EQ(again.end.exit, Exit::kOk);
  expect_equal(again, done, "again");
}

TEST(Loop, LostDataPublishesWhatWasTrainedAndEndsEveryRankAlike) {
  RunDir dir;
  ToyPlan plan{2, dir.path};
  plan.source.lost_from = 24 + 7;  // in the third window, on one rank first
  ToyRun run = run_toy(plan);
  EXPECT_EQ(run.exits, (std::vector<Exit>{Exit::kUnavailable, Exit::kUnavailable}));
  EXPECT_EQ(run.end.progress.step, 2);
  EXPECT_EQ(run.end.progress.cursor, 24u);
  EXPECT_EQ(ckpt::latest_checkpoint(dir.path), dir.path / "step-2");
  RunDir whole;
  plan.source.lost_from.reset(), plan.resume = true;
  expect_equal(run_toy(plan), run_toy({2, whole.path}), "continued");
}

TEST(Loop, VoidPositionsAreConsumedAndCountedAndKeepTheirSlot) {
  RunDir dir, other;
  ToyPlan plan{2, dir.path};
  plan.source.voids = {1, 4, 7};
  ToyRun run = run_toy(plan);
  EXPECT_EQ(run.end.progress.voids, 18);  // 3 of 10 rows, 6 epochs
  EXPECT_EQ(run.end.progress.cursor, 60u);
  plan.world = 3, plan.run_dir = other.path;
  expect_equal(run_toy(plan), run, "3 ranks");
}

TEST(Loop, AWindowOfVoidPositionsAloneChangesNoWeight) {
  RunDir dir;
  ToyPlan plan{2, dir.path};
  for (uint64_t row = 0; row < 10; ++row) plan.source.voids.push_back(row);
  ToyRun run = run_toy(plan);
  EXPECT_EQ(run.end.exit, Exit::kOk);
  EXPECT_EQ(run.end.progress.updates, 0);
  EXPECT_EQ(run.end.progress.voids, 60);
}

TEST(Loop, AShortLastWindowTrainsItsPositions) {
  RunDir dir, other;
  ToyPlan plan{2, dir.path, {2, 4, 27}, 4};
  ToyRun run = run_toy(plan);
  EXPECT_EQ(run.end.progress.cursor, 27u);
  EXPECT_EQ(run.record.values.at("positions"), (std::vector<double>{8, 8, 8, 3}));
  plan.world = 4, plan.run_dir = other.path;
  expect_equal(run_toy(plan), run, "4 ranks");
}

TEST(Loop, ANonFiniteStepIsSkippedAndCounted) {
  RunDir dir;
  ToyPlan plan{2, dir.path, {1, 10, 50}, 5};
  plan.windows.micro_batches = 5, plan.windows.positions = 25;
  plan.source.poisoned = {4};
  plan.skip_limit = 5;
  ToyRun run = run_toy(plan);
  EXPECT_GT(run.end.progress.skipped, 0);
  EXPECT_EQ(run.end.progress.updates + run.end.progress.skipped, 5);
  for (const auto& [name, weight] : run.weights) EXPECT_TRUE(std::isfinite(weight.sum().item<double>())) << name;
}

TEST(Loop, NonFiniteStepsInARowEndTheRunNamingTheCulprit) {
  RunDir dir;
  ToyPlan plan{2, dir.path, {1, 10, 50}, 5};
  plan.source.poisoned = {4};  // once in every window of one epoch
  try {
    run_toy(plan);
    FAIL() << "the run went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kData);
    EXPECT_NE(error.message().find("3 steps in a row"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("rank"), std::string::npos) << error.message();
  }
}

TEST(Loop, ARunInWhichNoStepChangedAWeightIsNoSuccess) {
  RunDir dir;
  ToyPlan plan{2, dir.path, {1, 12, 12}, 1};
  for (uint64_t row = 0; row < 10; ++row) plan.source.poisoned.push_back(row);
  try {
    run_toy(plan);
    FAIL() << "it ended well";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kData);
    EXPECT_NE(error.message().find("none of the 1 steps"), std::string::npos) << error.message();
  }
}

TEST(Loop, SettingsOutOfRangeAreRefused) {
  RunDir dir;
  EXPECT_THROW(run_toy({1, dir.path, {0, 12, 60}}), Error);
  EXPECT_THROW(run_toy({1, dir.path, {1, 12, 0}}), Error);
  EXPECT_THROW(run_toy({1, dir.path, {1, 12, 60}, 6}), Error);
}

}  // namespace
}  // namespace sf::train
