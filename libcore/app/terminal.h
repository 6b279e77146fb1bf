// SPDX-License-Identifier: Apache-2.0
// What people see: log lines on stderr and one painted line of progress below them. Thread-safe; each line is one
// write.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace sf::app {

struct TerminalOptions {
  std::string prefix;    // "sf-train[0]: "
  bool quiet = false;    // only warnings and errors
  bool paint = false;    // overprint (a terminal, or asked for)
  bool progress = true;  // any progress at all
  bool colour = false;
  int fd = 2;
};

class Terminal {
 public:
  explicit Terminal(TerminalOptions options) : options_(std::move(options)) {}
  ~Terminal();
  void log(std::string_view text);
  void warn(std::string_view text);
  void error(std::string_view text);
  void progress(std::string_view stage, int64_t done, int64_t total, std::string_view detail);
  // "features 12/376 for 3.2 s", or "" before any progress.
  std::string state() const;

 private:
  void print(std::string_view label, std::string_view colour, std::string_view text);
  void write_line(std::string_view line);
  std::string progress_text(int64_t done, int64_t total, std::string_view detail, double now) const;
  void clear_painted();

  TerminalOptions options_;
  mutable std::mutex mutex_;  // guards everything below
  std::string stage_, painted_;
  int64_t done_ = 0, total_ = 0;
  double stage_start_ = 0, last_change_ = 0, last_paint_ = 0;
  bool stage_ended_ = true;
};

// Columns of the terminal behind a descriptor; 0 if it is none or does not say.
int terminal_columns(int fd);

// "1:02:03" or "4:05"; seconds below ten minutes keep no fraction.
std::string clock_text(double seconds);

}  // namespace sf::app
