// SPDX-License-Identifier: Apache-2.0
// Ranks that know each other only by the network: the engine's bits, and what a lost rank does to the others.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <thread>

#include "../unit/engine/toy.h"
#include "base/error.h"
#include "base/rng.h"
#include "comm/network.h"
#include "comm/socket.h"
#include "ranks.h"

namespace sf {
namespace {

namespace toy = engine::toy;
using Body = std::function<void(comm::Group& group, int pipe)>;

// Processes without a parent that knows them: what they write, and each one's end.
class Network {
 public:
  Network(int world, const Body& body) : world_(world) {
    UniqueFd listener = comm::listen_on("127.0.0.1", 0);
    port_ = comm::port_of(listener.get());
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    out_ = UniqueFd(ends[0]);
    UniqueFd in(ends[1]);
    for (int rank = 0; rank < world; ++rank) {
      pid_t pid = fork();
      if (pid == 0) _exit(be_rank(rank, listener.get(), in.get(), body));
      pids_.push_back(pid);
    }
  }

  pid_t pid(int rank) const { return pids_[static_cast<size_t>(rank)]; }
  int port() const { return port_; }
  std::string text() {
    std::string bytes;
    char piece[4096];
    for (ssize_t n; (n = read(out_.get(), piece, sizeof piece)) > 0;) bytes.append(piece, static_cast<size_t>(n));
    return bytes;
  }
  std::string line() {
    std::string text;
    for (char c; read(out_.get(), &c, 1) == 1 && c != '\n';) text += c;
    return text;
  }
  std::vector<int> ends() {
    std::vector<int> all;
    for (pid_t pid : pids_) {
      int status = 0;
      waitpid(pid, &status, 0);
      all.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    }
    return all;
  }

 private:
  int be_rank(int rank, int listener, int pipe, const Body& body) const {
    signal(SIGPIPE, SIG_IGN);  // as every command does: Gloo writes to connections that have ended
    try {
      comm::MeetingOptions options{.rank = rank, .world = world_, .host = "127.0.0.1", .port = port_, .job = "test"};
      if (rank == 0) options.listener = listener;
      auto meeting = comm::Meeting::join(options, Deadline::after(Seconds(20)));
      close(listener);
      auto group = comm::make_gloo(meeting, meeting->board(), rank, Deadline::after(Seconds(20)));
      body(*group, pipe);
      return 0;
    } catch (const Error& error) {
      Ranks::tell(pipe, error.what());
      return static_cast<int>(error.code());
    }
  }

  int world_, port_ = 0;
  UniqueFd out_;
  std::vector<pid_t> pids_;
};

TEST(Network, GivesTheBitsOfOneRank) {
  toy::Course course;
  for (int world : {1, 3}) {
    Network run(world, [&](comm::Group& group, int pipe) {
      auto record = toy::train(group, course);
      if (group.rank() == 0) write_all(pipe, std::as_bytes(std::span(record)), "pipe");
    });
    static std::string alone;
    std::string record = run.text();
    EXPECT_EQ(run.ends(), std::vector<int>(static_cast<size_t>(world), 0));
    if (world == 1) alone = record;
    EXPECT_EQ(record, alone);
  }
}

TEST(Network, AKilledRankEndsTheOthersWith69NamedWithin5S) {
  Rng rng(17, "kill");
  for (uint64_t round = 0; round < kills(6); ++round) {
    Network run(3, [](comm::Group& group, int pipe) {
      group.barrier(named("start"));
      Ranks::tell(pipe, "ready");
      toy::train(group, {.micro_batches = 12, .windows = 100'000});
    });
    for (int i = 0; i < 3; ++i) ASSERT_EQ(run.line(), "ready");
    int victim = static_cast<int>(rng.below(3, round));
    usleep(static_cast<useconds_t>(rng.below(150'000, round, 1)));
    double killed = monotonic_s();
    kill(run.pid(victim), SIGKILL);
    std::string said = run.text();
    EXPECT_LT(monotonic_s() - killed, 5.0);
    std::vector<int> wanted(3, 69);
    wanted[static_cast<size_t>(victim)] = -SIGKILL;
    EXPECT_EQ(run.ends(), wanted) << said;
    std::string name = fmt::format("rank {} (pid {}) died", victim, run.pid(victim));
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      EXPECT_NE(said.find(fmt::format("; rank {} waits in ", rank)), std::string::npos) << said;
    }
    EXPECT_NE(said.find(name), std::string::npos) << said;
    UniqueFd again = comm::listen_on("127.0.0.1", run.port());
    EXPECT_TRUE(again.valid()) << "port " << run.port() << " is still taken";
  }
}

TEST(Network, ARankThatIsLateIsNamedAtTheDeadline) {
  Network run(3, [](comm::Group& group, int pipe) {
    group.barrier(named("start"));
    if (group.rank() == 1) {
      Ranks::tell(pipe, "ready");
      usleep(300'000);  // its reporter has said where it is
      raise(SIGSTOP);
    }
    group.barrier(named("fold midlayer", 700));
  });
  EXPECT_EQ(run.line(), "ready");
  siginfo_t end{};
  waitid(P_PID, static_cast<id_t>(run.pid(0)), &end, WEXITED | WNOWAIT);
  kill(run.pid(1), SIGKILL);
  std::string said = run.text();
  EXPECT_EQ(run.ends(), (std::vector<int>{69, -SIGKILL, 69})) << said;
  EXPECT_NE(said.find("gave up waiting in fold midlayer: deadline passed"), std::string::npos) << said;
  EXPECT_NE(said.find(fmt::format("rank 1 (pid {}) computes since", run.pid(1))), std::string::npos) << said;
}

TEST(Network, EveryRankCanSayWhereTheOthersAre) {
  Network run(2, [](comm::Group& group, int pipe) {
    group.barrier(named("start"));
    if (group.rank() == 0) {
      usleep(800'000);
      Ranks::tell(pipe, group.state_text());
    }
    group.barrier(named("fold midlayer"));
  });
  std::string said = run.text();
  EXPECT_NE(said.find(fmt::format("rank 1 (pid {}) waits in fold midlayer since 0.", run.pid(1))), std::string::npos)
      << said;
  EXPECT_EQ(run.ends(), (std::vector<int>{0, 0}));
}

TEST(Network, RanksThatCallDifferentlyAreBothNamed) {
  Network run(2, [](comm::Group& group, int) {
    group.barrier(named("start"));
    std::vector<int64_t> sum(4);
    if (group.rank() == 0) group.barrier(named("gather a"));
    if (group.rank() == 1) group.all_reduce_sum(sum, named("fold b"));
  });
  std::string said = run.text();
  EXPECT_NE(said.find("rank 0 is in gather a (call 2), rank 1 in fold b (call 2)"), std::string::npos) << said;
  for (int end : run.ends()) EXPECT_TRUE(end == 70 || end == 69) << end;
}

TEST(Meeting, ARankThatNeverComesIsNamedAtTheDeadline) {
  try {
    comm::Meeting::join({.rank = 0, .world = 3, .host = "127.0.0.1", .port = 0, .job = "test"},
                        Deadline::after(Seconds(0.2)));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kUnavailable);
    EXPECT_NE(std::string(error.what()).find("in vain for rank 1, 2 of 3"), std::string::npos) << error.what();
  }
}

TEST(Meeting, AnotherJobsMeetingOnThePortIsNotOurs) {
  UniqueFd taken = comm::listen_on("127.0.0.1", 0);
  int port = comm::port_of(taken.get());
  std::thread stranger([&] {
    try {
      comm::Meeting::join(
          {.rank = 0, .world = 2, .host = "127.0.0.1", .port = port, .job = "theirs", .listener = taken.get()},
          Deadline::after(Seconds(2)));
    } catch (const Error&) {
    }
  });
  std::thread ours([&] {
    comm::Meeting::join({.rank = 0, .world = 2, .host = "127.0.0.1", .port = port, .job = "ours"},
                        Deadline::after(Seconds(10)));
  });
  auto meeting = comm::Meeting::join({.rank = 1, .world = 2, .host = "127.0.0.1", .port = port, .job = "ours"},
                                     Deadline::after(Seconds(10)));
  EXPECT_NE(meeting->place(), fmt::format("127.0.0.1:{}", port));
  ours.join();
  stranger.join();
}

TEST(Meeting, ARankThatComesTwiceIsRefused) {
  UniqueFd listener = comm::listen_on("127.0.0.1", 0);
  comm::MeetingOptions options{
      .rank = 0, .world = 3, .host = "127.0.0.1", .port = comm::port_of(listener.get()), .job = "test"};
  options.listener = listener.get();
  std::thread first([&] {
    try {
      comm::Meeting::join(options, Deadline::after(Seconds(2)));
    } catch (const Error&) {
    }
  });
  comm::MeetingOptions other = options;
  other.rank = 1;
  auto once = comm::Meeting::join(other, Deadline::after(Seconds(5)));
  try {
    comm::Meeting::join(other, Deadline::after(Seconds(5)));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kProtocol);
    EXPECT_NE(std::string(error.what()).find("rank 1 is here already"), std::string::npos) << error.what();
  }
  first.join();
}

}  // namespace
}  // namespace sf
