// SPDX-License-Identifier: Apache-2.0
#include "app/terminal.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/deadline.h"
#include "base/utf8.h"

namespace sf::app {
namespace {

constexpr double kPaintEvery = 0.1;   // seconds: at most 10 Hz
constexpr double kPlainEvery = 30.0;  // seconds between plain lines in a file

size_t width_of(int fd) {
  int columns = terminal_columns(fd);
  return columns > 10 ? static_cast<size_t>(columns) : 80;
}

// At most `most` code points of UTF-8 text.
std::string cut(std::string_view text, size_t most) {
  size_t seen = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    bool starts = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (starts && seen++ == most) return std::string(text.substr(0, i));
  }
  return std::string(text);
}

}  // namespace

int terminal_columns(int fd) {
  winsize size{};
  return isatty(fd) == 1 && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string clock_text(double seconds) {
  auto whole = static_cast<int64_t>(std::min(seconds, 1e9) + 0.5);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

Terminal::~Terminal() {
  std::lock_guard lock(mutex_);
  clear_painted();
}

void Terminal::write_line(std::string_view line) {
  // stderr that is gone must not end a run; there is nobody left to tell.
  while (!line.empty()) {
    ssize_t count = write(options_.fd, line.data(), line.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    line.remove_prefix(static_cast<size_t>(count));
  }
}

void Terminal::clear_painted() {
  if (painted_.empty()) return;
  write_line("\r\033[K");
  painted_.clear();
}

void Terminal::print(std::string_view label, std::string_view colour, std::string_view given) {
  const std::string shown = printable(given, true);
  std::string_view text = shown;
  std::lock_guard lock(mutex_);
  std::string out;
  while (true) {  // a text of several lines: each carries the prefix
    size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    out += options_.prefix;
    out += options_.colour && !label.empty() ? fmt::format("\033[{}m{}\033[0m", colour, label) : std::string(label);
    out += line;
    out += '\n';
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  std::string again = painted_;
  clear_painted();
  write_line(out);
  if (!again.empty()) write_line(again);
  painted_ = again;
}

void Terminal::log(std::string_view text) {
  if (!options_.quiet) print("", "", text);
}
void Terminal::warn(std::string_view text) {
  print("warning: ", "33", printable(text));
}
void Terminal::error(std::string_view text) {
  print("error: ", "31", printable(text));
}

std::string Terminal::progress_text(int64_t done, int64_t total, std::string_view detail, double now) const {
  std::string text = total > 0 ? fmt::format("{} {}/{}", stage_, done, total) : fmt::format("{} {}", stage_, done);
  double spent = now - stage_start_;
  text += fmt::format("  {}", clock_text(spent));
  if (total > done && done > 0 && spent > 1) {
    double left = spent * static_cast<double>(total - done) / static_cast<double>(done);
    text += fmt::format(", {} left", clock_text(left));
  }
  if (!detail.empty()) text += fmt::format("  {}", detail);
  return text;
}

void Terminal::progress(std::string_view stage, int64_t done, int64_t total, std::string_view detail) {
  std::lock_guard lock(mutex_);
  double now = monotonic_s();
  if (stage != stage_ || (stage_ended_ && done < total)) {
    stage_ = stage;
    stage_start_ = last_paint_ = now;
    stage_ended_ = false;
    if (options_.paint) last_paint_ = 0;
  }
  if (done != done_) last_change_ = now;
  done_ = done;
  total_ = total;
  if (options_.quiet || !options_.progress || stage_ended_) return;
  bool ends = total > 0 && done >= total;
  if (!ends && now - last_paint_ < (options_.paint ? kPaintEvery : kPlainEvery)) return;
  last_paint_ = now;
  stage_ended_ = ends;
  std::string text = printable(progress_text(done, total, detail, now));
  if (!options_.paint || ends) {
    clear_painted();
    write_line(options_.prefix + text + "\n");
    return;
  }
  std::string line = "\r" + cut(options_.prefix + text, width_of(options_.fd) - 1) + "\033[K";
  write_line(line);
  painted_ = line;
}

std::string Terminal::state() const {
  std::lock_guard lock(mutex_);
  if (stage_.empty()) return "";
  return fmt::format("{} {}/{}, unchanged for {:.1f} s", stage_, done_, total_, monotonic_s() - last_change_);
}

}  // namespace sf::app
