// SPDX-License-Identifier: Apache-2.0
// Runs one body on every rank of every kind of group; processes are forked and report failures by their status.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <vector>

#include "base/shm_control.h"
#include "comm/group.h"
#include "comm/nccl.h"
#include "comm/network.h"
#include "comm/socket.h"
#include "fake_nccl.h"

namespace sf::comm {

struct Form {
  const char* kind;
  int world;
  friend void PrintTo(const Form& form, std::ostream* out) { *out << form.kind << form.world; }
};

inline const std::vector<Form> kForms{
    {"single", 1}, {"threads", 1}, {"threads", 2}, {"threads", 3}, {"threads", 4}, {"threads", 7}, {"shm", 1},
    {"shm", 2},    {"shm", 3},     {"shm", 4},     {"shm", 7},     {"gloo", 1},    {"gloo", 2},    {"gloo", 3},
    {"gloo", 4},   {"gloo", 7},    {"nccl", 1},    {"nccl", 2},    {"nccl", 3},    {"nccl", 4},    {"nccl", 7}};

// What the ranks of a test inherit: the group's memory file, and a socket of rank 0 that listens.
struct Inherited {
  explicit Inherited(int world) : file(shm::create_control(world, 4096)), listener(listen_on("127.0.0.1", 0)) {}
  UniqueFd file, listener;
};

inline std::shared_ptr<Meeting> meet(const Inherited& inherited, int rank, int world) {
  return Meeting::join({.rank = rank,
                        .world = world,
                        .host = "127.0.0.1",
                        .port = port_of(inherited.listener.get()),
                        .job = "test",
                        .listener = rank == 0 ? inherited.listener.get() : -1},
                       Deadline::after(Seconds(20)));
}

inline std::unique_ptr<Group> make_group(const std::string& kind, const Inherited& inherited, int rank, int world) {
  if (kind == "shm") return make_shm(inherited.file.get(), rank, world);
  auto meeting = meet(inherited, rank, world);
  return make_gloo(meeting, meeting->board(), rank, Deadline::after(Seconds(20)));
}

inline void run_processes(const std::string& kind, int world, const std::function<void(Group&)>& body) {
  Inherited inherited(world);
  std::vector<pid_t> children;
  for (int rank = 0; rank < world; ++rank) {
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int status = 1;
      try {
        auto group = make_group(kind, inherited, rank, world);
        body(*group);
        status = ::testing::Test::HasFailure() ? 2 : 0;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      }
      std::fflush(nullptr);
      _exit(status);
    }
    children.push_back(child);
  }
  for (size_t rank = 0; rank < children.size(); ++rank) {
    int status = 0;
    ASSERT_EQ(waitpid(children[rank], &status, 0), children[rank]);
    EXPECT_EQ(status, 0) << "rank " << rank;
  }
}

inline void run_form(const Form& form, const std::function<void(Group&)>& body) {
  std::string kind = form.kind;
  if (kind == "single") {
    body(*make_single());
  } else if (kind == "threads") {
    run_threads(form.world, body);
  } else if (kind == "nccl") {  // on the fake
    run_threads(form.world, [&](Group& threads) {
      Call call{"end", Deadline::after(Seconds(20))};
      auto group = make_nccl(fake::table(), threads.split(0, call), {.piece_bytes = 4096});
      body(*group);
      threads.barrier(call);
    });
  } else {
    run_processes(kind, form.world, body);
  }
}

}  // namespace sf::comm
