// SPDX-License-Identifier: Apache-2.0
// The engine on processes: the bits of one rank, whatever the number of ranks; and a run that loses a rank.
#include <gtest/gtest.h>
#include <signal.h>

#include <sstream>

#include "../unit/engine/toy.h"
#include "base/error.h"
#include "base/rng.h"
#include "ranks.h"

namespace sf {
namespace {

namespace toy = engine::toy;

// What rank 0 of `world` processes records.
std::string train_processes(int world, const toy::Course& course) {
  Ranks run(world, [&](int rank, int fd, int pipe) {
    auto group = comm::make_shm(fd, rank, world);
    auto record = toy::train(*group, course);
    auto bytes = std::as_bytes(std::span(record));
    if (rank == 0) write_all(pipe, bytes, "pipe");
    return 0;
  });
  std::string record = run.all();
  EXPECT_EQ(run.status(), 0);
  return record;
}

TEST(Processes, WorldsOf1To4GiveEqualBits) {
  for (Dtype compute : {Dtype::kF32, Dtype::kBF16}) {
    toy::Course course;
    course.options.schedule.compute = compute;
    std::string alone = train_processes(1, course);
    EXPECT_EQ(alone.size(), (3 * 13 + 37 * 9 + 5 * 9 + 2 * 9 * 9 + 2 * 9) * sizeof(float));
    for (int world : {2, 3, 4}) EXPECT_EQ(train_processes(world, course), alone) << world;
  }
}

TEST(Processes, CopiesAndReplicasAndPrefetchGiveTheBitsOfOneRank) {
  std::string alone = train_processes(1, {});
  EXPECT_EQ(train_processes(3, toy::with({.layout = plan::Layout::kReplicate})), alone);
  EXPECT_EQ(train_processes(4, toy::with({.replicas = 2})), alone);
  EXPECT_EQ(train_processes(2, toy::with({.prefetch = 1})), alone);
}

TEST(Processes, GiveTheBitsOfThreads) {
  toy::Course course;
  std::string processes = train_processes(2, course);
  Ranks run(1, [&](int, int, int pipe) {
    comm::run_threads(3, [&](comm::Group& group) {
      auto record = toy::train(group, course);
      if (group.rank() == 0) write_all(pipe, std::as_bytes(std::span(record)), "pipe");
    });
    return 0;
  });
  EXPECT_EQ(run.all(), processes);
}

// Kill -9 at a random moment of training: the others name who died and what they waited for, and nothing stays behind.
TEST(Processes, AKilledRankEndsTheOthersWith69NamedAndLeavesNothing) {
  auto before = shared_files();
  Rng rng(13, "kill");
  for (uint64_t trial = 0; trial < kills(7); ++trial) {
    Ranks run(3, [](int rank, int fd, int pipe) {
      Ranks::tell(pipe, fmt::format("{} {}", rank, getpid()));
      auto group = comm::make_shm(fd, rank, 3);
      toy::train(*group, {.micro_batches = 12, .windows = 100'000});
      return 0;
    });
    int victim = static_cast<int>(rng.below(3, trial));
    pid_t pid = 0;
    for (int i = 0; i < 3; ++i) {
      std::istringstream line(run.line());
      int rank = -1, its_pid = 0;
      line >> rank >> its_pid;
      if (rank == victim) pid = its_pid;
    }
    ASSERT_GT(pid, 0);
    usleep(static_cast<useconds_t>(rng.below(150'000, trial, 1)));
    double killed = monotonic_s();
    kill(pid, SIGKILL);
    std::string said = run.rest();
    EXPECT_EQ(run.status(), 69) << said;
    EXPECT_LT(monotonic_s() - killed, 2.0);  // a round and 200 ms promised; the rest is for a loaded machine
    std::string name = fmt::format("rank {} (pid {}) ", victim, pid);
    EXPECT_NE(said.find(name + "was killed by signal 9"), std::string::npos) << said;
    EXPECT_NE(said.find(name + "died"), std::string::npos) << said;
  }
  EXPECT_EQ(shared_files(), before);
}

TEST(Processes, APlanThatDiffersIsRefusedWith76OnTheFirstRound) {
  Ranks run(2, [](int rank, int fd, int) {
    auto group = comm::make_shm(fd, rank, 2);
    toy::Course course;
    course.options.schedule.mode = rank == 0 ? engine::Mode::kKeep : engine::Mode::kRecompute;
    toy::train(*group, course);
    return 0;
  });
  std::string said = run.rest();
  EXPECT_NE(said.find("plans differ"), std::string::npos) << said;
  EXPECT_EQ(run.status(), 76);
}

}  // namespace
}  // namespace sf
