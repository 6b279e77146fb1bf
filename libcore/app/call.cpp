// SPDX-License-Identifier: Apache-2.0
#include "app/call.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <sstream>

#include "app/colours.h"
#include "app/signals.h"
#include "base/error.h"
#include "base/file.h"
#include "base/shm_control.h"

namespace sf {
const char* version();
}

namespace sf::app {
namespace {

std::string prefix_of(const CallSetup& setup) {
  return fmt::format("{}[{}]: ", setup.command->name, setup.ranks.rank);
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown host";
}

}  // namespace

Call::Call(CallSetup setup)
    : setup_(std::move(setup)),
      terminal_({.prefix = prefix_of(setup_),
                 .quiet = setup_.quiet,
                 .paint = setup_.paint,
                 .progress = setup_.progress && setup_.ranks.rank == 0,
                 .colour = setup_.colour}),
      result_to_file_(setup_.parsed.has("output") && !setup_.parsed.has("plan") &&
                      !find_option(setup_.parsed.verb->options, "output")) {}

Call::~Call() {
  listener_.request_stop();
  if (listener_.joinable()) wake_quit_reader();
  if (listener_.joinable()) listener_.join();
}

bool Call::has(std::string_view option) const {
  SF_ASSERT(option != "output" || !result_to_file_);  // else two would write one file
  return setup_.parsed.has(option);
}

std::string Call::get(std::string_view option) const {
  SF_CHECK(has(option), Exit::kUsage, "--{} is needed here", option);
  return setup_.parsed.last(option, "");
}

std::string Call::get(std::string_view option, std::string_view otherwise) const {
  if (!has(option)) return std::string(otherwise);
  return setup_.parsed.last(option, otherwise);
}

std::vector<std::string> Call::all(std::string_view option) const {
  auto found = setup_.parsed.values.find(std::string(option));
  return found == setup_.parsed.values.end() ? std::vector<std::string>{} : found->second;
}

void Call::result(std::string_view line) {
  if (setup_.ranks.rank != 0) return;
  std::string whole = std::string(line) + "\n";
  if (result_to_file_) {
    result_text_ += whole;
  } else {
    write_all(STDOUT_FILENO, whole, "standard output");
  }
}

void Call::finish() {
  if (!result_to_file_ || setup_.ranks.rank != 0 || result_text_.empty()) return;
  const std::string file = setup_.parsed.last("output", "");
  refuse_to_replace(file);
  write_atomic(file, result_text_);
}

void Call::log(std::string_view line) {
  if (setup_.ranks.rank == 0 || setup_.verbose) terminal_.log(line);
}

void Call::progress(std::string_view stage, int64_t done, int64_t total, std::string_view detail) {
  terminal_.progress(stage, done, total, detail);
}

Stop Call::stop() {
  return requested_stop();
}
int Call::stop_signal() const {
  return requested_stop_signal();
}
bool result_has_colours(const Invocation& invocation) {
  const auto* call = dynamic_cast<const Call*>(&invocation);
  return call && call->result_has_colours();
}

bool Call::stdin_is_terminal() const {
  return isatty(STDIN_FILENO) == 1;
}

void Call::set_state_report(std::function<std::string()> report) {
  std::lock_guard lock(report_mutex_);
  report_ = std::move(report);
}

void Call::log_first_lines() {
  log(setup_.command_line);
  const RankEnv& ranks = setup_.ranks;
  log(fmt::format("{} (ShardForge) {}, rank {} of {} ({}) on {}, process {}", setup_.command->name, version(),
                  ranks.rank, ranks.world, ranks.source, host_name(), getpid()));
  const config::Settings& settings = setup_.settings;
  if (!setup_.parsed.verb->settings.empty())
    log(fmt::format("settings sha256={} ({} given, the rest are defaults)", settings.digest(),
                    settings.given_keys().size()));
  std::string unread = fmt::format("{}", fmt::join(settings.unread(), ", "));
  if (!unread.empty()) log(fmt::format("not read by {}: {}", setup_.parsed.verb->name, unread));
  if (!setup_.verbose) return;
  std::string text = settings.resolved_toml();
  if (!text.empty()) log(text.substr(0, text.size() - 1));
}

void Call::listen() {
  // Ranks leave together, so one of several waits for the others. A verb of ranks is run again after 75.
  Early early = setup_.ranks.world > 1 ? Early::kFlag : setup_.parsed.verb->ranks ? Early::kAgain : Early::kDie;
  install_signals(prefix_of(setup_), early);
  // Its supervisor's end may have been told while such a signal was ignored, as nohup and background jobs have it.
  if (setup_.group_fd >= 0 && shm::supervisor_is_gone(*shm::Region::map(setup_.group_fd))) raise(SIGTERM);
  listener_ = std::jthread([this](const std::stop_token& stop) { answer_quits(stop); });
  pthread_setname_np(listener_.native_handle(), "sf-listen");
}

void Call::answer_quits(const std::stop_token& stop) {
  pollfd wait{.fd = quit_descriptor(), .events = POLLIN};
  while (true) {
    int ready = poll(&wait, 1, -1);
    if (stop.stop_requested()) return;
    if (ready <= 0) continue;
    char bytes[16];
    while (read(wait.fd, bytes, sizeof bytes) > 0) {
    }
    if (setup_.group_fd >= 0 && setup_.ranks.rank != 0) continue;  // the supervisor has said what this rank does
    const std::string state = terminal_.state();
    terminal_.warn("state: " + (state.empty() ? "no stage has begun" : state));
    std::lock_guard lock(report_mutex_);
    std::istringstream lines(report_ && setup_.group_fd < 0 ? report_() : "");  // one a rank
    for (std::string line; std::getline(lines, line);) terminal_.warn(line);
  }
}

}  // namespace sf::app
