// SPDX-License-Identifier: Apache-2.0
// One call of one verb on one rank: the Invocation that run_command hands out.
#pragma once
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "app/cli.h"
#include "app/command.h"
#include "app/terminal.h"

namespace sf::app {

struct CallSetup {
  const Command* command = nullptr;
  Parsed parsed;
  std::string command_line;  // shell-quoted
  config::Settings settings{{}};
  RankEnv ranks;
  int group_fd = -1;
  int life_fd = 0;  // stdin, or a copy of rank 0's
  bool quiet = false, verbose = false, paint = false, progress = true, colour = false;
  bool result_colour = false;
};

class Call : public Invocation {
 public:
  explicit Call(CallSetup setup);
  ~Call() override;  // ends the thread that answers SIGQUIT

  const std::string& command_line() const override { return setup_.command_line; }
  bool has(std::string_view option) const override;
  std::string get(std::string_view option) const override;
  std::string get(std::string_view option, std::string_view otherwise) const override;
  std::vector<std::string> all(std::string_view option) const override;
  const std::vector<std::string>& positional() const override { return setup_.parsed.positional; }
  config::Settings& settings() override { return setup_.settings; }
  bool plan_only() const override { return has("plan"); }
  bool json_output() const override { return get("format", "text") == "json"; }
  const RankEnv& ranks() const override { return setup_.ranks; }
  int group_fd() const override { return setup_.group_fd; }
  int life_fd() const override { return setup_.life_fd; }
  void result(std::string_view line) override;
  void log(std::string_view line) override;
  void warn(std::string_view line) override { terminal_.warn(line); }
  void progress(std::string_view stage, int64_t done, int64_t total, std::string_view detail) override;
  Stop stop() override;
  int stop_signal() const override;
  void set_state_report(std::function<std::string()> report) override;
  bool stdin_is_terminal() const override;
  bool result_has_colours() const { return setup_.result_colour && !result_to_file_; }

  Terminal& terminal() { return terminal_; }
  // The exact command, the release, the world and where it came from, the digest of the settings.
  void log_first_lines();
  // Installs signal handlers and the thread that answers SIGQUIT. After the last fork.
  void listen();
  // Publishes the result, if there is one, where it goes to a file (-o of verbs that print).
  void finish();

 private:
  void answer_quits(const std::stop_token& stop);

  CallSetup setup_;
  Terminal terminal_;
  bool result_to_file_ = false;
  std::string result_text_;
  std::mutex report_mutex_;  // guards report_
  std::function<std::string()> report_;
  std::jthread listener_;
};

}  // namespace sf::app
