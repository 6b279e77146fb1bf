// SPDX-License-Identifier: Apache-2.0
// Runs a function in a child process and tells what it wrote and how it ended.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

namespace sf::app {

struct Ended {
  std::string out, err;
  int status = -1;  // exit status, or -n for death by signal n
};

inline std::string drained(int fd) {
  std::string text;
  char bytes[4096];
  for (ssize_t count; (count = read(fd, bytes, sizeof bytes)) > 0;) text.append(bytes, static_cast<size_t>(count));
  close(fd);
  return text;
}

inline Ended in_child(const std::function<int()>& act) {
  int out[2], err[2];
  if (pipe(out) != 0 || pipe(err) != 0) std::abort();
  pid_t pid = fork();
  if (pid == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    for (int fd : {out[0], out[1], err[0], err[1]}) close(fd);
    _exit(act());
  }
  close(out[1]);
  close(err[1]);
  Ended ended;
  std::thread reader([&] { ended.err = drained(err[0]); });
  ended.out = drained(out[0]);
  reader.join();
  int status = 0;
  waitpid(pid, &status, 0);
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return ended;
}

}  // namespace sf::app
