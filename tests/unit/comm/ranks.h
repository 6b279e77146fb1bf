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

namespace sf::comm {

struct Form {
  const char* kind;
  int world;
  friend void PrintTo(const Form& form, std::ostream* out) { *out << form.kind << form.world; }
};

inline const std::vector<Form> kForms{{"single", 1},  {"threads", 1}, {"threads", 2}, {"threads", 3},
                                      {"threads", 4}, {"threads", 7}, {"shm", 1},     {"shm", 2},
                                      {"shm", 3},     {"shm", 4},     {"shm", 7}};

inline void run_processes(int world, const std::function<void(Group&)>& body) {
  int fd = shm::create_control(world, 4096);
  std::vector<pid_t> children;
  for (int rank = 0; rank < world; ++rank) {
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int status = 1;
      try {
        auto group = make_shm(fd, rank, world);
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
  close(fd);
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
  } else {
    run_processes(form.world, body);
  }
}

}  // namespace sf::comm
