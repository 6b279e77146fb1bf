// SPDX-License-Identifier: Apache-2.0
#include "tool/reward_program.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"

namespace sf::tool {
namespace {

// A score of n / 10 for what it is asked, a line at a time.
const std::string kScores = "sed -u 's/^{\"n\":\\([0-9]*\\),.*/{\"n\":\\1,\"score\":0.\\1}/'";

std::vector<RewardAsk> asks(size_t count, size_t length = 10) {
  std::vector<RewardAsk> all;
  for (size_t i = 0; i < count; ++i)
    all.push_back(
        {.id = fmt::format("q{}", i), .question = "1 + 1?", .gold = "2", .response = std::string(length, 'x')});
  return all;
}

RewardProgram program(const std::string& command, int64_t restarts = 0, double deadline_s = 10) {
  signal(SIGPIPE, SIG_IGN);
  return RewardProgram({.command = command, .deadline_s = deadline_s, .restarts = restarts});
}

std::string refusal(Exit code, const std::string& command, int64_t restarts = 0, double deadline_s = 10) {
  RewardProgram one = program(command, restarts, deadline_s);
  try {
    one.judge(asks(5));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    return error.message();
  }
  return "nothing was refused";
}

TEST(RewardProgram, ScoresEveryResponseStepAfterStep) {
  RewardProgram one = program(kScores);
  for (int step = 0; step < 3; ++step) {
    const std::vector<Json> said = one.judge(asks(9));
    ASSERT_EQ(said.size(), 9u);
    for (size_t n = 0; n < said.size(); ++n)
      EXPECT_EQ(said[n].at("score").as_double(), static_cast<double>(n) / 10) << said[n].dump();
  }
}

TEST(RewardProgram, MaySayMoreThanPipesHoldBeforeItIsReadAndInAnyOrder) {
  // It reads all 20 MB before it says a line, then the last first.
  RewardProgram one = program("head -n 400 | tac | " + kScores);
  const std::vector<Json> said = one.judge(asks(400, 50'000));
  ASSERT_EQ(said.size(), 400u);
  EXPECT_EQ(said[7].at("n").as_int(), 7);
}

TEST(RewardProgram, ThatEndsIsBegunAgainAndAskedForWhatItOwes) {
  const std::string two_lines = "head -n 2 | " + kScores;
  RewardProgram one = program(two_lines, 2);
  EXPECT_EQ(one.judge(asks(6)).size(), 6u);
  const std::string why = refusal(Exit::kUnavailable, two_lines, 1);
  EXPECT_NE(why.find("owes 1 of 5 answers; it was begun 2 times"), std::string::npos) << why;
  EXPECT_NE(refusal(Exit::kUnavailable, "exit 3").find("ended with 3, and owes 5 of 5"), std::string::npos);
}

TEST(RewardProgram, ThatSaysNothingIsEndedAtTheDeadline) {
  const std::string why = refusal(Exit::kUnavailable, "sleep 1000", 1, 0.05);
  EXPECT_NE(why.find("said nothing for 0.05 s and was killed"), std::string::npos) << why;
}

TEST(RewardProgram, SayingWhatIsNoAnswerIsRefusedWithTheLine) {
  for (const auto& [said, why] :
       {std::pair{"hello", "no JSON"},
        {"{\"score\":1}", "it names no n"},
        {"{\"n\":5,\"score\":1}", "there is no such n"},
        {"{\"n\":-1,\"score\":1}", "there is no such n"},
        {"{\"n\":1}", "it has no score of question q1, sample 0"},
        {"{\"n\":1,\"score\":1e999}", "1e999"},
        {"{\"n\":1,\"score\":NaN}", "no JSON, which has no NaN"},
        {"{\"n\":1,\"score\":1e308}", "question q1, sample 0 must lie within -1e+12 and 1e+12"},
        {"{\"n\":1,\"score\":-1e13}", "question q1, sample 0 must lie within"},
        {"{\"n\":1,\"score\":\"1\"}", "it has no score of question q1, sample 0"},
        {"{\"n\":1,\"score\":1}\n{\"n\":1,\"score\":1}", "question q1, sample 0 was told before"}}) {
    const std::string message = refusal(Exit::kData, fmt::format("printf '{}\\n'; sleep 1", said), 0, 5);
    EXPECT_NE(message.find(why), std::string::npos) << message;
  }
  EXPECT_NE(refusal(Exit::kData, "head -c 2000000 /dev/zero").find("a line of more than 1048576 bytes"),
            std::string::npos);
}

// Whoever holds the other end of the pipe lives.
TEST(RewardProgram, DoesNotOutliveATrainerThatIsKilled) {
  constexpr int kTheirs = 9;  // one digit, for the shell
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t trainer = fork();
  if (trainer == 0) {
    dup2(ends[1], kTheirs);
    close(ends[0]), close(ends[1]);
    const int nowhere = open("/dev/null", O_WRONLY);  // a survivor must not hold what the test writes to
    dup2(nowhere, 1), dup2(nowhere, 2);
    // Deaf to the end of its input, and so is what it began.
    RewardProgram one = program("sleep 30 & echo >&9; sleep 30", 0, 1000);
    one.judge(asks(1));
    _exit(0);
  }
  close(ends[1]);
  char byte = 0;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  kill(trainer, SIGKILL);
  waitpid(trainer, nullptr, 0);
  pollfd wait{ends[0], POLLIN, 0};
  EXPECT_EQ(poll(&wait, 1, 5000), 1) << "something of the program lives";
  EXPECT_EQ(wait.revents & POLLIN, 0);
  close(ends[0]);
}

TEST(RewardProgram, IsLeftAtARequestToStop) {
  signal(SIGPIPE, SIG_IGN);
  RewardProgram one({.command = "sleep 1000", .cancelled = [] { return true; }});
  EXPECT_TRUE(one.judge(asks(2)).empty());
}

}  // namespace
}  // namespace sf::tool
