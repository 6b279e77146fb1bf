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
  Mode mode;
  Dtype compute;
  plan::Layout layout;
};

class Bits : public ::testing::TestWithParam<Form> {
 protected:
  Course run() const {
    Course run;
    run.options.mode = GetParam().mode;
    run.options.compute = GetParam().compute;
    run.options.layout = GetParam().layout;
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
  whole.options.replicated = {"position.weight"};
  EXPECT_TRUE(same_bits(train_threads(2, whole), train_threads(2, run())));
}

INSTANTIATE_TEST_SUITE_P(Forms, Bits,
                         ::testing::Values(Form{Mode::kKeep, Dtype::kF32, plan::Layout::kDim0},
                                           Form{Mode::kRecompute, Dtype::kF32, plan::Layout::kDim0},
                                           Form{Mode::kKeep, Dtype::kBF16, plan::Layout::kDim0},
                                           Form{Mode::kRecompute, Dtype::kBF16, plan::Layout::kFlat}),
                         [](const auto& info) {
                           return std::string(info.param.mode == Mode::kKeep ? "keep" : "recompute") +
                                  (info.param.compute == Dtype::kF32 ? "_f32" : "_bf16") +
                                  (info.param.layout == plan::Layout::kDim0 ? "_dim0" : "_flat");
                         });

TEST(Modes, KeepAndRecomputeGiveEqualBits) {
  Course keep, recompute;
  recompute.options.mode = Mode::kRecompute;
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
