// SPDX-License-Identifier: Apache-2.0
// Any world size, same bits: losses, norms and weights of three windows of 12 micro-batches.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/fault.h"
#include "toy.h"

namespace sf::engine {
namespace {

using toy::Course;
using toy::same_bits;

std::vector<float> train_threads(int world, const Course& run) {
  std::vector<std::vector<float>> records(static_cast<size_t>(world));
  comm::run_threads(world, [&](comm::Group& group) { records[static_cast<size_t>(group.rank())] = train(group, run); });
  for (const auto& record : records) EXPECT_TRUE(same_bits(record, records[0]));
  return records[0];
}

std::vector<float> train_alone(const Course& run) {
  return train(*comm::make_single(), run);
}

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

TEST(Modes, KeepAndRecomputeGiveEqualBits) {
  Course keep, recompute;
  recompute.options.schedule.mode = Mode::kRecompute;
  EXPECT_TRUE(same_bits(train_alone(keep), train_alone(recompute)));
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
