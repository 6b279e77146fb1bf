// SPDX-License-Identifier: Apache-2.0
#include "app/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

namespace sf::app {
namespace {

// A pipe that collects what a Terminal writes.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe2(ends_, O_NONBLOCK), 0); }
  ~Pipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  int in() const { return ends_[1]; }
  std::string text() {
    char bytes[4096];
    ssize_t count = read(ends_[0], bytes, sizeof bytes);
    return count > 0 ? std::string(bytes, static_cast<size_t>(count)) : "";
  }

 private:
  int ends_[2];
};

TEST(Terminal, EveryLineOfALogCarriesThePrefix) {
  Pipe pipe;
  Terminal terminal({.prefix = "sf-test[3]: ", .fd = pipe.in()});
  terminal.log("one\ntwo");
  EXPECT_EQ(pipe.text(), "sf-test[3]: one\nsf-test[3]: two\n");
}

TEST(Terminal, QuietKeepsWarningsAndErrors) {
  Pipe pipe;
  Terminal terminal({.prefix = "p: ", .quiet = true, .fd = pipe.in()});
  terminal.log("hidden");
  terminal.progress("stage", 1, 1, "");
  terminal.warn("seen");
  terminal.error("too");
  EXPECT_EQ(pipe.text(), "p: warning: seen\np: error: too\n");
}

TEST(Terminal, WithoutATerminalOnlyTheEndOfAShortStageIsPrinted) {
  Pipe pipe;
  Terminal terminal({.prefix = "p: ", .fd = pipe.in()});
  for (int done = 0; done <= 5; ++done) terminal.progress("rows", done, 5, "7/s");
  EXPECT_EQ(pipe.text(), "p: rows 5/5  0:00  7/s\n");
}

TEST(Terminal, LogsGoAboveThePaintedLine) {
  Pipe pipe;
  Terminal terminal({.prefix = "p: ", .paint = true, .fd = pipe.in()});
  terminal.progress("rows", 1, 5, "");
  std::string painted = pipe.text();
  EXPECT_EQ(painted, "\rp: rows 1/5  0:00\033[K");
  terminal.log("note");
  EXPECT_EQ(pipe.text(), "\r\033[Kp: note\n" + painted);
  terminal.progress("rows", 5, 5, "");
  EXPECT_EQ(pipe.text(), "\r\033[Kp: rows 5/5  0:00\n");
}

TEST(Terminal, StateNamesTheStage) {
  Pipe pipe;
  Terminal terminal({.prefix = "p: ", .fd = pipe.in()});
  EXPECT_EQ(terminal.state(), "");
  terminal.progress("rows", 2, 5, "");
  EXPECT_EQ(terminal.state().rfind("rows 2/5, unchanged for 0.", 0), 0u);
}

TEST(Terminal, ClockTextIsShort) {
  EXPECT_EQ(clock_text(65), "1:05");
  EXPECT_EQ(clock_text(3661), "1:01:01");
}

TEST(Columns, AreTheTerminalsAndNoneElsewhere) {
  Pipe pipe;
  EXPECT_EQ(terminal_columns(pipe.in()), 0);
  int ends[2];
  winsize size{.ws_row = 24, .ws_col = 97, .ws_xpixel = 0, .ws_ypixel = 0};
  if (openpty(&ends[0], &ends[1], nullptr, nullptr, &size) != 0) GTEST_SKIP() << "no pseudo terminal here";
  EXPECT_EQ(terminal_columns(ends[1]), 97);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace sf::app
