// SPDX-License-Identifier: Apache-2.0
#include "app/signals.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "base/error.h"
#include "base/fault.h"

namespace sf::app {
namespace {

// Slurm sends TERM, CONT, TERM within 0.1 s, and Ctrl-C reaches a rank twice (terminal and supervisor): one request.
constexpr int64_t kOneRequestNs = 2'000'000'000;

std::atomic<int> g_stop_signal{0};
std::atomic<int64_t> g_first_stop_ns{0};
std::atomic<bool> g_publish{false};
std::atomic<bool> g_looked_at{false};
std::atomic<int> g_quit_write{-1};
int g_quit_read = -1;
Early g_early = Early::kFlag;
std::array<char, 160> g_abort_line{}, g_early_line{};
size_t g_abort_length = 0, g_early_length = 0;

static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Publishing is by rename, so dying here leaves the last checkpoint whole.
void die_by(int number) {
  signal(number, SIG_DFL);
  raise(number);
}

// Nobody looks at requests yet: nothing is done that could be kept, and a read may wait for an input that never comes.
void end_early(int number) {
  if (g_early == Early::kFlag) return;
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, g_early_line.data(), g_early_length);
  if (g_early == Early::kAgain) _exit(static_cast<int>(Exit::kAgain));
  die_by(number);
}

void on_stop(int number) {
  int saved = errno;
  int64_t now = now_ns(), none = 0;
  if (g_first_stop_ns.compare_exchange_strong(none, now)) {
    g_stop_signal = number;
    if (!g_looked_at) end_early(number);
  } else if (number != SIGUSR1 && now - g_first_stop_ns.load() > kOneRequestNs) {
    [[maybe_unused]] ssize_t written = write(STDERR_FILENO, g_abort_line.data(), g_abort_length);
    die_by(number);
  }
  errno = saved;
}

void on_publish(int) {
  g_publish = true;
}

void on_quit(int) {
  int saved = errno;
  [[maybe_unused]] ssize_t written = write(g_quit_write, "q", 1);  // a full pipe already wakes the reader
  errno = saved;
}

size_t keep(const std::string& line, std::array<char, 160>& into) {
  size_t length = std::min(line.size(), into.size());
  memcpy(into.data(), line.data(), length);
  return length;
}

void handle(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  if (sigaction(number, &action, nullptr) != 0)
    fail(Exit::kOs, "cannot handle signal {}: {}", number, errno_text(errno));
}

bool ignored_at_start(int number) {
  struct sigaction action {};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void install_signals(const std::string& prefix, Early early) {
  g_abort_length = keep(prefix + "second request to stop: aborting without a new checkpoint\n", g_abort_line);
  g_early_length = keep(prefix + "stopped before anything was begun\n", g_early_line);
  g_early = fault("app.deaf_start") ? Early::kFlag : early;
  int ends[2];
  SF_CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0, Exit::kOs, "cannot make a pipe: {}", errno_text(errno));
  g_quit_read = ends[0];
  g_quit_write = ends[1];
  for (int number : {SIGTERM, SIGUSR1}) handle(number, on_stop);
  for (int number : {SIGINT, SIGHUP})
    if (!ignored_at_start(number)) handle(number, on_stop);
  handle(SIGUSR2, on_publish);
  handle(SIGQUIT, on_quit);
  handle(SIGPIPE, SIG_IGN);
}

Stop requested_stop() {
  g_looked_at = true;
  if (g_stop_signal != 0) return Stop::kFinishStep;
  return g_publish.exchange(false) ? Stop::kPublishAndGoOn : Stop::kNone;
}

int requested_stop_signal() {
  return g_stop_signal;
}

int quit_descriptor() {
  return g_quit_read;
}

void wake_quit_reader() {
  on_quit(0);
}

}  // namespace sf::app
