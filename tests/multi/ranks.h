// SPDX-License-Identifier: Apache-2.0
// Ranks under a supervisor in a process of their own, and what they say.
#pragma once
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include "app/supervisor.h"
#include "base/file.h"
#include "comm/group.h"

namespace sf {

// A process with a supervisor inside, and the pipe its ranks write to. The supervisor re-points its own stdin and
// stdout, so it never runs in the test's own process.
class Ranks {
 public:
  Ranks(int ranks, const std::function<int(int rank, int control_fd, int pipe)>& child, Seconds grace = Seconds(10)) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    out_ = UniqueFd(ends[0]);
    UniqueFd in(ends[1]);
    pid_ = fork();
    if (pid_ != 0) return;
    app::SuperviseOptions options{grace, [&](std::string_view line) { tell(in.get(), line); }};
    _exit(app::supervise(
        ranks, [&](int rank, int fd) { return child(rank, fd, in.get()); }, options));
  }
  ~Ranks() {
    if (pid_ > 0) status();
  }

  static void tell(int pipe, std::string_view line) {
    std::string text(line);
    text += "\n";
    EXPECT_EQ(write(pipe, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  std::string line() {
    std::string text;
    char c;
    while (read(out_.get(), &c, 1) == 1 && c != '\n') text += c;
    return text;
  }
  std::string rest() {
    std::string text, next;
    while (!(next = line()).empty()) text += next + "\n";
    return text;
  }
  std::string all() {
    std::string bytes;
    char piece[4096];
    for (ssize_t n; (n = read(out_.get(), piece, sizeof piece)) > 0;) bytes.append(piece, static_cast<size_t>(n));
    return bytes;
  }
  pid_t pid() const { return pid_; }
  int status() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  UniqueFd out_;
  pid_t pid_ = -1;
};

inline comm::Call named(std::string_view tag, int64_t ms = 20'000) {
  return {tag, Deadline::after_ms(ms)};
}

// How often a test kills at random: a few times, or with SF_SOAK set fifteen times as often. Each kill has its own
// seed.
inline uint64_t kills(uint64_t few) {
  return std::getenv("SF_SOAK") ? few * 15 : few;
}

inline std::set<std::string> shared_files() {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error)) names.insert(entry.path());
  return names;
}

}  // namespace sf
