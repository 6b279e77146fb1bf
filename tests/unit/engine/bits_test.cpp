// SPDX-License-Identifier: Apache-2.0
// Any world size, same bits: losses, norms and weights of three windows of 12 micro-batches.
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <filesystem>

#include "base/fault.h"
#include "toy.h"

namespace sf::engine {
namespace {

using toy::Course;
using toy::same_bits;

using toy::train_alone;
using toy::train_threads;

struct Form {
  std::string name;
  plan::ScheduleOptions schedule;
};

class Bits : public ::testing::TestWithParam<Form> {
 protected:
  Course run() const {
    Course run;
    run.options.schedule = GetParam().schedule;
    return run;
  }
};

TEST_P(Bits, WorldsOf1To4AreEqual) {
  auto alone = train_alone(run());
  ASSERT_EQ(alone.size(), 3 * 13 + 37u * 9 + 5 * 9 + 2 * 9 * 9 + 2 * 9);
  for (int world : {1, 2, 3, 4}) EXPECT_TRUE(same_bits(train_threads(world, run()), alone)) << world;
}

TEST_P(Bits, AWindowThatDoesNotFillItsLastRoundIsEqualToo) {
  Course partial = run();
  partial.micro_batches = 5;
  auto alone = train_alone(partial);
  for (int world : {2, 3, 4}) EXPECT_TRUE(same_bits(train_threads(world, partial), alone)) << world;
}

TEST_P(Bits, ATableHeldWholeGivesTheBitsOfOneGathered) {
  Course whole = run();
  whole.options.schedule.replicated = {"position.weight"};
  EXPECT_TRUE(same_bits(train_threads(2, whole), train_threads(2, run())));
}

TEST(Bf16Masters, StayBf16NumbersAndAreEqualForEveryWorldSize) {
  auto run = [](int world) {
    std::vector<float> record;
    comm::run_threads(world, [&](comm::Group& group) {
      tensor::set_threads(1);
      Engine engine(group, toy::spec(), toy::segments(), {});
      for (const arch::Parameter& parameter : toy::spec().parameters)
        engine.load(parameter.name, [&](int64_t lo, int64_t hi, std::span<float> to) {
          Rng rng(3, parameter.name);
          for (int64_t i = lo; i < hi; ++i)
            to[static_cast<size_t>(i - lo)] = rng.normal(static_cast<uint64_t>(i)) > 1 ? 4.0f : -0.25f;
        });
      Course course;
      course.bf16 = true;
      std::vector<float> mine = toy::train(engine, course);
      for (const Engine::Piece& piece : engine.state())
        for (float value : piece.values) EXPECT_EQ(std::bit_cast<uint32_t>(value) & 0xffff, 0u) << piece.name;
      if (group.rank() == 0) record = mine;
    });
    return record;
  };
  std::vector<float> alone = run(1);
  EXPECT_GT(alone[13], 0) << "a step leaves some bf16 numbers as they are";
  EXPECT_LT(alone[13], 1);
  for (int world : {2, 3}) EXPECT_TRUE(same_bits(run(world), alone)) << world;
}

using plan::Layout;
using plan::Reshard;

INSTANTIATE_TEST_SUITE_P(
    Forms, Bits,
    ::testing::Values(
        Form{"keep_f32_dim0", {}}, Form{"recompute_f32_dim0", {.mode = Mode::kRecompute}},
        Form{"keep_bf16_dim0", {.compute = Dtype::kBF16}},
        Form{"recompute_bf16_flat", {.layout = Layout::kFlat, .compute = Dtype::kBF16, .mode = Mode::kRecompute}},
        Form{"keep_f32_replicate", {.layout = Layout::kReplicate}},
        Form{"keep_bf16_replicate", {.layout = Layout::kReplicate, .compute = Dtype::kBF16}},
        Form{"keep_f32_dim0_grad_op", {.reshard = Reshard::kGradOp}},
        Form{"keep_bf16_flat_none", {.layout = Layout::kFlat, .reshard = Reshard::kNone, .compute = Dtype::kBF16}}),
    [](const auto& info) { return info.param.name; });

// What a layout or a residency changes is where bytes lie, never what is computed.
TEST(Layouts, AllGiveTheSameBits) {
  Course dim0;
  auto wanted = train_alone(dim0);
  for (Layout layout : {Layout::kDim0, Layout::kFlat, Layout::kReplicate}) {
    for (Reshard reshard : {Reshard::kFull, Reshard::kGradOp, Reshard::kNone}) {
      Course run;
      run.options.schedule.layout = layout;
      run.options.schedule.reshard = reshard;
      EXPECT_TRUE(same_bits(train_threads(3, run), wanted)) << name_of(layout) << " " << name_of(reshard);
    }
  }
}

TEST(Modes, AllGiveEqualBits) {
  auto keep = train_alone({});
  for (Mode mode : {Mode::kRecompute, Mode::kOffload}) {
    Course other = toy::with({.mode = mode});
    other.options.spill_dir = std::filesystem::temp_directory_path();
    EXPECT_TRUE(same_bits(train_alone(other), keep)) << name_of(mode);
  }
}

TEST(Modes, ASegmentMayHaveItsOwn) {
  Course mixed = toy::with({.modes = {{"block.0", Mode::kRecompute}, {"embed", Mode::kOffload}}});
  mixed.options.spill_dir = std::filesystem::temp_directory_path();
  EXPECT_TRUE(same_bits(train_threads(2, mixed), train_alone({})));
}

// Seven ranks, more than a window's micro-batches, and as many as its rounds do not divide.
TEST(Worlds, WindowsOf1And5And12MicroBatchesAreEqualOn7Ranks) {
  for (int64_t micro_batches : {1, 5, 12}) {
    auto alone = train_alone(toy::with({}, micro_batches, 2));
    for (Layout layout : {Layout::kDim0, Layout::kFlat, Layout::kReplicate}) {
      Course run = toy::with({.layout = layout}, micro_batches, 2);
      EXPECT_TRUE(same_bits(train_threads(7, run), alone)) << micro_batches << " " << name_of(layout);
    }
  }
}

TEST(Worlds, OneHundredAndTwentyEightRanksGiveTheBitsOfOne) {
  Course run = toy::with({}, 130, 1);
  EXPECT_TRUE(same_bits(train_threads(128, run), train_alone(run)));
}

TEST(Meshes, OfReplicasAndShardsGiveTheBitsOfOneRank) {
  for (Dtype compute : {Dtype::kF32, Dtype::kBF16}) {
    auto alone = train_alone(toy::with({.compute = compute}));
    for (auto [world, replicas] : {std::pair(4, 2), {6, 2}, {6, 3}}) {
      for (Layout layout : {Layout::kDim0, Layout::kFlat}) {
        Course run = toy::with({.layout = layout, .replicas = replicas, .compute = compute});
        EXPECT_TRUE(same_bits(train_threads(world, run), alone)) << replicas << " of " << world << name_of(layout);
      }
    }
  }
}

// Gathers run ahead and folds beside the computation, on a thread; the order of calls stays.
TEST(Prefetch, OfAnyDepthGivesTheSameBits) {
  auto alone = train_alone({});
  for (int depth : {1, 2, 9}) {
    for (Reshard reshard : {Reshard::kFull, Reshard::kGradOp, Reshard::kNone}) {
      Course run = toy::with({.reshard = reshard, .prefetch = depth});
      EXPECT_TRUE(same_bits(train_threads(2, run), alone)) << depth << " " << name_of(reshard);
    }
  }
  Course narrow = toy::with({.compute = Dtype::kBF16, .prefetch = 2});
  EXPECT_TRUE(same_bits(train_threads(3, narrow), train_alone(toy::with({.compute = Dtype::kBF16}))));
}

TEST(Worlds, MoreRanksThanRowsStillGiveTheBitsOfOne) {
  Course run;
  run.windows = 1;
  EXPECT_TRUE(same_bits(train_threads(11, run), train_alone(run)));
}

// The controls: what would pass unnoticed if the comparison were blind.
class Control {
 public:
  explicit Control(const char* name) {
    setenv("SF_FAULT", name, 1);
    on_ = fault(name);
  }
  ~Control() { unsetenv("SF_FAULT"); }
  bool on() const { return on_; }

 private:
  bool on_ = false;
};

TEST(Controls, SummingLocallyBeforeTheFoldIsSeen) {
  if (std::getenv("SF_FAULT")) GTEST_SKIP() << "another fault is being tried";
  auto alone = train_alone({});
  Control control("engine.local_sum");
  if (!control.on()) GTEST_SKIP() << "built without faults";
  EXPECT_FALSE(same_bits(train_threads(2, {}), alone));
}

TEST(Controls, DroppingTheAliasIsSeen) {
  if (std::getenv("SF_FAULT")) GTEST_SKIP() << "another fault is being tried";
  auto alone = train_alone({});
  Control control("engine.drop_alias");
  if (!control.on()) GTEST_SKIP() << "built without faults";
  EXPECT_FALSE(same_bits(train_alone({}), alone));
}

}  // namespace
}  // namespace sf::engine
