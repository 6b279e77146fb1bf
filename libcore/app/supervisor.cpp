// SPDX-License-Identifier: Apache-2.0
#include "app/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/shm_control.h"

namespace sf::app {
namespace {

constexpr std::array kPassedOn{SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT};
constexpr double kOneRequestS = 2;
// For a rank that others gave up waiting for: it has had its deadline already.
constexpr Seconds kLateGrace{2};

size_t threads_of_this_process() {
  std::error_code error;
  std::filesystem::directory_iterator tasks("/proc/self/task", error);
  return error ? 1 : static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

class Supervisor {
 public:
  Supervisor(int ranks, const SuperviseOptions& options) : options_(options), control_(shm::create_control(ranks)) {
    region_ = shm::Region::map(control_.get());
    region_->control().supervisor.store(getpid());
    ranks_.resize(static_cast<size_t>(ranks));
    block_signals();
  }

  ~Supervisor() {
    for (const Rank& rank : ranks_) {
      if (!rank.running) continue;
      kill(rank.pid, SIGKILL);
      waitpid(rank.pid, nullptr, 0);
    }
    signals_ = UniqueFd();
    sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
  }

  int run(const std::function<int(int, int)>& child) {
    pid_t self = getpid();
    for (size_t rank = 0; rank < ranks_.size(); ++rank) start(static_cast<int>(rank), self, child);
    // Else a pipe's other side would not learn that rank 0 is gone as long as we live.
    point_at_null({STDIN_FILENO, STDOUT_FILENO});
    while (std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running; })) watch();
    std::vector<int> ends;
    for (const Rank& rank : ranks_) ends.push_back(rank.end);
    return agreed_status(ends);
  }

 private:
  struct Rank {
    pid_t pid = 0;
    bool running = false;
    int end = 0;  // status, or -n for death by signal n
    bool killed_by_us = false;
  };

  void block_signals() {
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    for (int signal : kPassedOn) {
      struct sigaction now {};
      sigaction(signal, nullptr, &now);
      // nohup and background jobs stay as they are; QUIT asks for a report and ends nothing.
      if (now.sa_handler != SIG_IGN || signal == SIGQUIT) sigaddset(&wanted, signal);
    }
    sigprocmask(SIG_BLOCK, &wanted, &mask_before_);
    signals_ = UniqueFd(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
    SF_CHECK(signals_.valid(), Exit::kOs, "cannot receive signals: {}", errno_text(errno));
  }

  void start(int rank, pid_t supervisor, const std::function<int(int, int)>& child) {
    std::fflush(nullptr);
    pid_t pid = fork();
    SF_CHECK(pid >= 0, Exit::kOs, "cannot start rank {} of {}: {}", rank, ranks_.size(), errno_text(errno));
    if (pid == 0) be_rank(rank, supervisor, child);
    ranks_[static_cast<size_t>(rank)] = {pid, true, 0, false};
    region_->slot(rank).pid.store(pid);
  }

  [[noreturn]] void be_rank(int rank, pid_t supervisor, const std::function<int(int, int)>& child) {
    int status = static_cast<int>(Exit::kSoftware);
    try {
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != supervisor) _exit(static_cast<int>(Exit::kUnavailable));
      signals_ = UniqueFd();
      sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
      if (rank > 0) point_at_null({STDIN_FILENO, STDOUT_FILENO});
      status = child(rank, control_.get());
    } catch (const Error& error) {
      say(fmt::format("rank {}: {}", rank, error.what()));
      status = static_cast<int>(error.code());
    } catch (const std::exception& error) {
      say(fmt::format("rank {}: {}", rank, error.what()));
    }
    std::fflush(nullptr);
    _exit(status);
  }

  void watch() {
    int timeout = -1;
    if (bad_end_) timeout = std::max(0, std::min(kill_at_.left_ms(), kill_late_at_.left_ms()));
    if (bad_end_ && kill_late_at_.passed()) timeout = std::max(0, kill_at_.left_ms());
    pollfd wait{signals_.get(), POLLIN, 0};
    poll(&wait, 1, timeout);
    signalfd_siginfo info{};
    while (read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      if (static_cast<int>(info.ssi_signo) != SIGCHLD) pass_on(static_cast<int>(info.ssi_signo), info.ssi_code);
    }
    reap();
    if (bad_end_ && kill_late_at_.passed() && !fault("app.spare_late")) kill_late();
    if (bad_end_ && kill_at_.passed()) kill_the_rest();
  }

  void pass_on(int signal, int origin) {
    if (signal == SIGQUIT) say(shm::state_text(*region_));
    if (signal == SIGQUIT && origin == SI_KERNEL) return;  // a terminal's reaches the ranks by itself
    bool stop = signal != SIGQUIT && signal != SIGUSR2;
    auto last = last_.find(signal);
    if (stop && last != last_.end() && monotonic_s() - last->second < kOneRequestS) return;
    last_[signal] = monotonic_s();
    for (const Rank& rank : ranks_) {
      if (rank.running) kill(rank.pid, signal);
    }
  }

  void reap() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      int status = 0;
      if (ranks_[rank].running && waitpid(ranks_[rank].pid, &status, WNOHANG) == ranks_[rank].pid) {
        ended(static_cast<int>(rank), status);
      }
    }
  }

  void ended(int number, int status) {
    Rank& rank = ranks_[static_cast<size_t>(number)];
    rank.running = false;
    rank.end = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    shm::Life life = region_->slot(number).life.load();
    bool in_group = life == shm::Life::kAlive || life == shm::Life::kAbsent;
    if (rank.end == 0) {
      if (in_group) shm::end_rank(*region_, number, shm::Life::kLeft, "");
      return;
    }
    std::string how = rank.end < 0 ? fmt::format("killed by signal {} ({})", -rank.end, strsignal(-rank.end))
                                   : fmt::format("ended with status {}", rank.end);
    if (in_group) shm::end_rank(*region_, number, shm::Life::kDead, how);
    if (rank.killed_by_us) rank.end = static_cast<int>(Exit::kUnavailable);
    if (rank.end < 0) say(fmt::format("rank {} (pid {}) was {}", number, rank.pid, how));
    if (!bad_end_) kill_at_ = Deadline::after(options_.grace);
    kill_late_at_ = Deadline::after(kLateGrace);
    bad_end_ = true;
  }

  void kill_late() {
    for (size_t number = 0; number < ranks_.size(); ++number) {
      if (region_->slot(static_cast<int>(number)).late.load() != 0)
        kill_rank(number, "is the one the others gave up waiting for");
    }
  }

  void kill_the_rest() {
    for (size_t number = 0; number < ranks_.size(); ++number)
      kill_rank(number, fmt::format("has not ended {:.0f} s after another rank did", options_.grace.count()));
    kill_at_ = Deadline::after(options_.grace);
  }

  // Also ends a stopped process.
  void kill_rank(size_t number, const std::string& why) {
    Rank& rank = ranks_[number];
    if (!rank.running || rank.killed_by_us) return;
    rank.killed_by_us = true;
    say(fmt::format("rank {} (pid {}) {}: killing it", number, rank.pid, why));
    kill(rank.pid, SIGKILL);
  }

  void say(const std::string& text) const {
    for (size_t at = 0; options_.say && at < text.size();) {
      size_t end = std::min(text.find('\n', at), text.size());
      options_.say(std::string_view(text).substr(at, end - at));
      at = end + 1;
    }
  }

  const SuperviseOptions& options_;
  UniqueFd control_, signals_;
  std::shared_ptr<shm::Region> region_;
  std::vector<Rank> ranks_;
  sigset_t mask_before_{};
  std::map<int, double> last_;
  bool bad_end_ = false;
  Deadline kill_at_ = Deadline::after(Seconds(0)), kill_late_at_ = kill_at_;
};

// Echoes below causes: a rank that lost its peer ends with 69, the peer that caused it with something better.
int gravity(int end) {
  switch (end) {
    case -SIGKILL:
      return 1001;
    case 0:
    case static_cast<int>(Exit::kNo):
      return end;
    case static_cast<int>(Exit::kAgain):
      return 2;
    case static_cast<int>(Exit::kUnavailable):
      return 3;
    default:
      return end < 0 ? 1000 : 3 + end;
  }
}

bool is_passed_on(int signal) {
  return std::find(kPassedOn.begin(), kPassedOn.end(), signal) != kPassedOn.end();
}

}  // namespace

void point_at_null(std::initializer_list<int> descriptors) {
  UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int descriptor : descriptors)
    if (!null.valid() || dup2(null.get(), descriptor) < 0)
      fail(Exit::kOs, "cannot use /dev/null: {}", errno_text(errno));
}

int agreed_status(const std::vector<int>& ends) {
  int worst = 0;
  for (int end : ends) {
    if (gravity(end) > gravity(worst)) worst = end;
  }
  if (worst >= 0) return worst;
  if (is_passed_on(-worst)) return 128 - worst;
  return static_cast<int>(worst == -SIGKILL ? Exit::kUnavailable : Exit::kSoftware);
}

int supervise(int ranks, const std::function<int(int rank, int control_fd)>& child, const SuperviseOptions& options) {
  SF_CHECK(threads_of_this_process() == 1, Exit::kSoftware, "ranks must be started before any thread");
  return Supervisor(ranks, options).run(child);
}

}  // namespace sf::app
