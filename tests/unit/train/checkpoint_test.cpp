// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "toy.h"

namespace sf::train {
namespace {

namespace fs = std::filesystem;
using test::run_toy;
using test::ToyPlan;

struct RunDir {
  fs::path path;
  RunDir() {
    static int made = 0;
    path = fs::temp_directory_path() / ("sf-checkpoint-" + std::to_string(getpid()) + "-" + std::to_string(made++));
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~RunDir() { fs::remove_all(path); }
};

ToyPlan every_step(const fs::path& dir, int world = 2) {
  ToyPlan plan{world, dir};
  plan.checkpoint_every = 1;
  return plan;
}

TEST(TrainCheckpoint, HoldsTheDraftTheMomentsAndTheCursor) {
  RunDir dir;
  run_toy(every_step(dir.path));
  ckpt::Checkpoint checkpoint = ckpt::Checkpoint::open(dir.path / "latest");
  EXPECT_EQ(checkpoint.manifest().kind, "train");
  EXPECT_EQ(checkpoint.manifest().step, 5);
  EXPECT_EQ(checkpoint.manifest().cursor, 60);
  EXPECT_TRUE(checkpoint.verify().empty());
  EXPECT_EQ(arch::eagle3_from_config(checkpoint.config()).draft_vocab, test::toy_draft().draft_vocab);
  for (const char* name : {"fc.weight", "lm_head.weight", "midlayer.self_attn.q_proj.weight", "t2d", "d2t"})
    EXPECT_TRUE(checkpoint.contains(name)) << name;
  for (const char* name : {"embed_tokens.weight", "target_head.weight", "fc.weight.exp_avg"})
    EXPECT_FALSE(checkpoint.contains(name)) << name;
  ckpt::SafetensorsFile moments = ckpt::SafetensorsFile::open(dir.path / "latest" / "optimizer.safetensors");
  EXPECT_NE(moments.find("fc.weight.exp_avg"), nullptr);
  EXPECT_NE(moments.find("fc.weight.exp_avg_sq"), nullptr);
}

TEST(TrainCheckpoint, KeepsTheNewestOnly) {
  RunDir dir;
  ToyPlan plan = every_step(dir.path);
  plan.keep = 2;
  run_toy(plan);
  EXPECT_FALSE(fs::exists(dir.path / "step-3"));
  EXPECT_TRUE(fs::exists(dir.path / "step-4"));
  EXPECT_TRUE(fs::exists(dir.path / "step-5"));
}

TEST(TrainCheckpoint, AFailureToWriteEndsEveryRankWithTheSameError) {
  RunDir dir;
  ToyPlan plan{2, dir.path / "file"};
  std::ofstream(plan.run_dir) << "in the way";
  try {
    run_toy(plan);
    FAIL() << "published into a file";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kCantCreate) << error.what();
  }
}

TEST(TrainCheckpoint, WhatIsWrittenWhileStepsGoOnIsTheStepThatWasSaved) {
  RunDir busy, stopped;
  run_toy(every_step(busy.path));
  ToyPlan plan{2, stopped.path};
  plan.stop_at = 3;
  run_toy(plan);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(read_file(busy.path / "step-3" / file), read_file(stopped.path / "step-3" / file)) << file;
}

TEST(TrainCheckpoint, AFailureToWriteWhileStepsGoOnEndsEveryRankAtTheNextSave) {
  RunDir dir;
  ToyPlan plan = every_step(dir.path / "file");
  std::ofstream(plan.run_dir) << "in the way";
  try {
    run_toy(plan);
    FAIL() << "published into a file";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kCantCreate) << error.what();
  }
}

TEST(TrainCheckpoint, ADraftWithoutOptimizerStateIsRefused) {
  RunDir dir;
  ToyPlan plan{1, dir.path};
  run_toy(plan);
  std::string text = read_file(dir.path / "step-5" / "manifest.json");
  text.replace(text.find("\"train\""), 7, "\"draft\"");
  std::ofstream(dir.path / "step-5" / "manifest.json") << text;
  comm::run_threads(1, [&](comm::Group& group) {
    arch::Eagle3 draft = test::toy_draft();
    engine::Engine engine(group, arch::describe_training(draft),
                          model::eagle3_segments(draft, test::toy_vocabulary(draft), {3, false}), {});
    Checkpoints checkpoints({dir.path});
    try {
      checkpoints.load(engine, ckpt::Checkpoint::open(dir.path / "step-5"));
      ADD_FAILURE() << "loaded";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::kData);
    }
  });
}

// The children run one rank without threads of their own, so that fork is safe here.
TEST(TrainCheckpoint, AKillAtAnyInstantLeavesACheckpointThatContinues) {
  RunDir dir;
  int survived = 0;
  for (int round = 0; round < 6; ++round) {
    pid_t child = fork();
    if (child == 0) {
      ToyPlan plan = every_step(dir.path, 1);
      plan.windows = {1, 2, 4000}, plan.steps = 2000;
      plan.resume = ckpt::latest_checkpoint(dir.path).has_value();
      run_toy(plan);
      _exit(0);
    }
    usleep(150000 + 13000 * round);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    auto newest = ckpt::latest_checkpoint(dir.path);
    if (!newest) continue;
    ++survived;
    EXPECT_TRUE(ckpt::Checkpoint::open(*newest).verify().empty()) << *newest;
  }
  EXPECT_GT(survived, 0);
}

}  // namespace
}  // namespace sf::train
