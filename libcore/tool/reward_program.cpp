// SPDX-License-Identifier: Apache-2.0
#include "tool/reward_program.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "base/fault.h"
#include "rl/most_score.h"

namespace sf::tool {
namespace {

constexpr size_t kLongestLine = size_t{1} << 20;
constexpr size_t kShown = 120;  // bytes of a line in a message
constexpr int kLookMs = 100;    // how often a request to stop is looked for
constexpr Seconds kLeave{1};
// What /bin/sh does as the first of the program's group, of which $1 is the command: told that we are gone, however
// that came, it ends the group. It holds neither end of the pipes.
constexpr const char* kGuard =
    "trap 'kill -KILL 0' TERM; exec 3<&0; /bin/sh -c \"$1\" <&3 3<&- & exec <&- 3<&- >&-; wait $!";
constexpr int kSignalled = 128;  // a shell's status beyond it tells of a signal

std::pair<UniqueFd, UniqueFd> make_pipe() {
  int ends[2];
  SF_CHECK(pipe2(ends, O_CLOEXEC) == 0, Exit::kOs, "no pipe for the program of --reward: {}", strerror(errno));
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

void do_not_block(int fd) {
  SF_CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0, Exit::kOs, "a pipe: {}", strerror(errno));
}

std::string line_of(size_t n, const RewardAsk& ask) {
  return Json::object()
             .set("n", static_cast<int64_t>(n))
             .set("id", ask.id)
             .set("sample", ask.sample)
             .set("question", ask.question)
             .set("answer", ask.gold)
             .set("response", ask.response)
             .set("tokens", ask.tokens)
             .set("finish", ask.cut ? "length" : "stop")
             .dump() +
         "\n";
}

std::string ending(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  const int code = WEXITSTATUS(status);
  return code > kSignalled ? fmt::format("was ended by signal {}", code - kSignalled)
                           : fmt::format("ended with {}", code);
}

}  // namespace

// One set of responses, while a program answers it.
class RewardProgram::Exchange {
 public:
  Exchange(std::span<const RewardAsk> asks, const std::string& command)
      : asks_(asks), command_(command), said_(asks.size()), left_(asks.size()) {}

  size_t left() const { return left_; }
  std::vector<Json> take() { return std::move(said_); }

  // To a program that knows nothing yet.
  void ask_again() {
    out_.clear(), in_.clear();
    sent_ = 0;
    for (size_t n = 0; n < asks_.size(); ++n)
      if (said_[n].is_null()) out_ += line_of(n, asks_[n]);
  }

  bool has_more() const { return sent_ < out_.size(); }
  // False: the program reads no more.
  bool send(int fd) {
    while (has_more()) {
      const ssize_t wrote = write(fd, out_.data() + sent_, out_.size() - sent_);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) return errno == EAGAIN;
      sent_ += static_cast<size_t>(wrote);
    }
    return true;
  }
  // False: the program says no more.
  bool receive(int fd) {
    std::array<char, 65536> buffer;
    for (;;) {
      const ssize_t count = read(fd, buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return errno == EAGAIN;
      if (count == 0) return false;
      in_.append(buffer.data(), static_cast<size_t>(count));
      take_lines();
    }
  }

 private:
  void take_lines() {
    size_t begin = 0;
    for (size_t end; (end = in_.find('\n', begin)) != std::string::npos; begin = end + 1)
      take_line(std::string_view(in_).substr(begin, end - begin));
    in_.erase(0, begin);
    SF_CHECK(in_.size() <= kLongestLine, Exit::kData, "the program of --reward ({}) said a line of more than {} bytes",
             command_, kLongestLine);
  }

  void take_line(std::string_view line) {
    const auto refuse = [&](std::string_view why) {
      fail(Exit::kData, "the program of --reward ({}) said {}: {}; wanted {{\"n\":N,\"score\":X}}", command_,
           Json(line.substr(0, kShown)).dump(), why);
    };
    Json said;
    try {
      said = Json::parse(line, "the program of --reward");
    } catch (const Error& error) {
      refuse("no JSON, which has no NaN or Infinity");
    }
    if (!said.is_object() || !said.contains("n") || !said.at("n").is_int()) refuse("it names no n");
    const int64_t n = said.at("n").as_int();
    if (n < 0 || n >= std::ssize(said_)) refuse("there is no such n");
    const RewardAsk& ask = asks_[static_cast<size_t>(n)];
    const std::string whose = fmt::format("question {}, sample {}", ask.id, ask.sample);
    const Json* score = said.find("score");
    if (!score || !score->is_number()) refuse("it has no score of " + whose);
    if (!(std::abs(score->as_double()) <= rl::kMostScore))
      refuse(fmt::format("the score of {} must lie within {:g} and {:g}", whose, -rl::kMostScore, rl::kMostScore));
    Json& place = said_[static_cast<size_t>(n)];
    if (!place.is_null()) refuse(whose + " was told before");
    place = std::move(said);
    --left_;
  }

  std::span<const RewardAsk> asks_;
  const std::string& command_;
  std::vector<Json> said_;  // null: not yet
  size_t left_;
  std::string out_, in_;
  size_t sent_ = 0;
};

RewardProgram::RewardProgram(RewardOptions options) : options_(std::move(options)) {}

RewardProgram::~RewardProgram() {
  end(false);
}

void RewardProgram::begin() {
  auto [theirs_in, ours_in] = make_pipe();
  auto [ours_out, theirs_out] = make_pipe();
  const pid_t self = getpid();
  const int at_our_end = fault("tool.no_guard") ? 0 : SIGTERM;
  const char* const command = options_.command.c_str();
  pid_ = fork();
  SF_CHECK(pid_ >= 0, Exit::kOs, "no process for the program of --reward: {}", strerror(errno));
  if (pid_ == 0) {  // from here to exec only what a signal handler may do
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, at_our_end);
    if (getppid() != self) _exit(127);
    for (int number : {SIGPIPE, SIGTERM}) signal(number, SIG_DFL);
    dup2(theirs_in.get(), STDIN_FILENO);
    dup2(theirs_out.get(), STDOUT_FILENO);
    execl("/bin/sh", "sh", "-c", kGuard, "sh", command, nullptr);
    _exit(127);
  }
  in_ = std::move(ours_in), out_ = std::move(ours_out);
  do_not_block(in_.get()), do_not_block(out_.get());
}

std::string RewardProgram::end(bool at_once) {
  if (pid_ < 0) return "was not begun";
  in_ = UniqueFd();
  out_ = UniqueFd();
  int status = 0;
  pid_t gone = 0;
  for (Deadline patience = Deadline::after(at_once ? Seconds(0.05) : kLeave); gone == 0 && !patience.passed();) {
    gone = waitpid(pid_, &status, WNOHANG);
    if (gone == 0) usleep(5000);
  }
  const bool killed = gone == 0;
  kill(-pid_, SIGKILL);  // what it began does not outlive it
  if (killed) waitpid(pid_, &status, 0);
  pid_ = -1;
  return killed ? "was killed" : ending(status);
}

std::vector<Json> RewardProgram::judge(std::span<const RewardAsk> asks) {
  Exchange exchange(asks, options_.command);
  for (int64_t restarts = 0; exchange.left() > 0; ++restarts) {
    if (pid_ < 0) begin();
    exchange.ask_again();
    bool alive = true;
    Deadline patience = Deadline::after(Seconds(options_.deadline_s));
    while (alive && exchange.left() > 0 && !patience.passed()) {
      if (options_.cancelled()) return {};
      pollfd ends[] = {{out_.get(), POLLIN, 0}, {exchange.has_more() ? in_.get() : -1, POLLOUT, 0}};
      poll(ends, 2, std::min(kLookMs, patience.left_ms()));
      const size_t before = exchange.left();
      if (ends[0].revents) alive = exchange.receive(out_.get());
      if (ends[1].revents) alive = exchange.send(in_.get()) && alive;
      if (exchange.left() < before) patience = Deadline::after(Seconds(options_.deadline_s));
    }
    if (exchange.left() == 0) break;
    const std::string how =
        alive ? fmt::format("said nothing for {} s and ", options_.deadline_s) + end(true) : end(true);
    const std::string what = fmt::format("the program of --reward ({}) {}, and owes {} of {} answers", options_.command,
                                         how, exchange.left(), asks.size());
    SF_CHECK(restarts < options_.restarts && !fault("tool.no_second_program"), Exit::kUnavailable,
             "{}; it was begun {} times", what, restarts + 1);
    options_.warn(what + ": it is begun again");
  }
  return exchange.take();
}

}  // namespace sf::tool
