// SPDX-License-Identifier: Apache-2.0
// Whole calls of run_command in a child process: what goes where, and which status comes out.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <new>
#include <optional>
#include <stdexcept>

#include "app/command.h"
#include "base/error.h"
#include "base/file.h"
#include "child.h"

namespace sf {
const char* version() {
  return "9.9.9";
}  // the library's own is not part of this room
}  // namespace sf

namespace sf::app {
namespace {

using Act = std::function<int(Invocation&)>;

Ended run(const Act& act, std::vector<std::string> words = {}, bool ranks = false) {
  Verb verb{.name = "act",
            .purpose = "acts",
            .options = {{.name = "size", .value = "N", .help = "how big"}},
            .settings = {"training"},
            .run = act,
            .ranks = ranks};
  Command command{.name = "sf-test", .purpose = "tests", .verbs = {verb}};
  words.insert(words.begin(), {"sf-test", "act"});
  return in_child([&] {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    return run_command(static_cast<int>(argv.size()), argv.data(), command);
  });
}

template <typename Thrown>
Act throwing(Thrown thrown) {
  return [thrown](Invocation&) -> int { throw thrown; };
}

TEST(Run, ResultsGoToStdoutAndTheVerbsStatusComesBack) {
  Ended ended = run([](Invocation& call) {
    call.result("one");
    call.result("two");
    return 1;
  });
  EXPECT_EQ(ended.out, "one\ntwo\n");
  EXPECT_EQ(ended.err, "");
  EXPECT_EQ(ended.status, 1);
}

TEST(Run, WhatIsDoneNeedsNoComputingLibrary) {
  std::optional<int> found = 1;
  Verb verb{.name = "act", .purpose = "acts", .done = [&](Invocation&) { return found; }, .tensor_entry = "no_such"};
  const Command command{.name = "sf-test", .purpose = "tests", .verbs = {verb}};
  auto call = [&] {
    return in_child([&] {
      std::string words[] = {"sf-test", "act"};
      char* argv[] = {words[0].data(), words[1].data()};
      return run_command(2, argv, command);
    });
  };
  EXPECT_EQ(call().status, 1);
  found.reset();
  EXPECT_EQ(call().status, static_cast<int>(Exit::kUnavailable)) << "there is no such library beside this test";
}

TEST(Run, ErrorsBecomeStatusesAndAreToldOnce) {
  Ended ended = run(throwing(Error(Exit::kProtocol, "layers differ")));
  EXPECT_EQ(ended.status, 76);
  EXPECT_EQ(ended.err, "sf-test[0]: error: layers differ\n");
  EXPECT_EQ(run(throwing(std::bad_alloc())).status, 71);
  EXPECT_EQ(run(throwing(std::runtime_error("odd"))).status, 70);
  EXPECT_EQ(run(throwing(7)).status, 70);
  EXPECT_EQ(run(throwing(std::filesystem::filesystem_error("copy",
                                                           std::make_error_code(std::errc::no_such_file_or_directory))))
                .status,
            66);
}

TEST(Run, MisuseFoundByAVerbPointsAtItsHelp) {
  Ended ended = run([](Invocation& call) {
    call.get("size");
    return 0;
  });
  EXPECT_EQ(ended.status, 64);
  EXPECT_EQ(ended.err, "sf-test[0]: error: --size is needed here\nTry 'sf-test act --help' for more information.\n");
}

TEST(Run, OutputToAFileAppearsOnlyWhenTheVerbEnds) {
  std::filesystem::path file = std::filesystem::temp_directory_path() / ("sf-run-test-" + std::to_string(getpid()));
  auto act = [&](Invocation& call) {
    call.result("late");
    return std::filesystem::exists(file) ? 1 : 0;
  };
  Ended ended = run(act, {"-o", file.string()});
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(read_file(file), "late\n");
  std::filesystem::remove(file);
}

TEST(Run, AStopRequestIsSeenAndStays) {
  Ended ended = run([](Invocation& call) {
    bool before = call.stop() == Stop::kNone;
    raise(SIGTERM);
    raise(SIGTERM);
    bool asked = call.stop() == Stop::kFinishStep && call.stop() == Stop::kFinishStep && call.stop_signal() == SIGTERM;
    return before && asked ? static_cast<int>(Exit::kAgain) : 0;
  });
  EXPECT_EQ(ended.status, 75);
}

TEST(Run, AStopBeforeAnybodyLooksEndsTheProcessAtOnce) {
  Ended ended = run([](Invocation&) {
    raise(SIGTERM);
    return 0;
  });
  EXPECT_EQ(ended.status, -SIGTERM);
  EXPECT_EQ(ended.err, "sf-test[0]: stopped before anything was begun\n");
}

TEST(Run, AStoppedVerbLeavesTheResultFileAsItWas) {
  std::filesystem::path file = std::filesystem::temp_directory_path() / ("sf-run-kept-" + std::to_string(getpid()));
  write_atomic(file, "precious\n");
  auto act = [&](Invocation& call) {
    call.result("half of it");
    return 128 + SIGTERM;
  };
  EXPECT_EQ(run(act, {"-o", file.string()}).status, 128 + SIGTERM);
  EXPECT_EQ(read_file(file), "precious\n");
  std::filesystem::remove(file);
}

TEST(Run, AVerbCannotReadAnOptionThatIsNotItsOwn) {
  auto act = [](Invocation& call) { return call.has("output") ? 0 : 1; };
  EXPECT_EQ(run(act, {"-o", (std::filesystem::temp_directory_path() / "sf-never-made").string()}).status, 70);
}

TEST(Run, ControlCharactersOfAMessageAreShownNotObeyed) {
  auto act = [](Invocation&) -> int { fail(Exit::kData, "no \033[31mfile\na\xff"); };
  Ended ended = run(act);
  EXPECT_EQ(ended.err, "sf-test[0]: error: no \\x1b[31mfile\\na\\xff\n");
}

TEST(Run, ACheckpointRequestIsToldOnce) {
  Ended ended = run([](Invocation& call) {
    raise(SIGUSR2);
    return call.stop() == Stop::kPublishAndGoOn && call.stop() == Stop::kNone ? 0 : 1;
  });
  EXPECT_EQ(ended.status, 0);
}

TEST(Run, ASecondRequestLaterEndsTheProcessAtOnce) {
  Ended ended = run([](Invocation& call) {
    call.stop();
    raise(SIGTERM);
    usleep(2'100'000);
    raise(SIGTERM);
    return 0;
  });
  EXPECT_EQ(ended.status, -SIGTERM);
  EXPECT_EQ(ended.err, "sf-test[0]: second request to stop: aborting without a new checkpoint\n");
}

TEST(Run, InterruptsIgnoredAtTheStartStayIgnored) {
  Ended ended = in_child([] {
    signal(SIGINT, SIG_IGN);
    Verb verb{.name = "act", .run = [](Invocation& call) {
                raise(SIGINT);
                return call.stop() == Stop::kNone ? 0 : 1;
              }};
    Command command{.name = "sf-test", .verbs = {verb}};
    std::string words[] = {"sf-test", "act"};
    char* argv[] = {words[0].data(), words[1].data()};
    return run_command(2, argv, command);
  });
  EXPECT_EQ(ended.status, 0);
}

TEST(Run, QuitWritesTheStateAndGoesOn) {
  Ended ended = run([](Invocation& call) {
    call.progress("rows", 3, 9, "");
    call.set_state_report([] { return std::string("rank 0 waits in all_gather\nrank 1 computes"); });
    raise(SIGQUIT);
    usleep(300'000);
    return 0;
  });
  EXPECT_EQ(ended.status, 0);
  EXPECT_NE(ended.err.find("sf-test[0]: warning: state: rows 3/9"), std::string::npos) << ended.err;
  for (const char* line : {"warning: rank 0 waits in all_gather\n", "warning: rank 1 computes\n"})
    EXPECT_NE(ended.err.find(line), std::string::npos) << ended.err;
}

TEST(Run, RanksStartTogetherAndOnlyRankZeroOwnsStdout) {
  Ended ended = run(
      [](Invocation& call) {
        call.result("rank " + std::to_string(call.ranks().rank) + " of " + std::to_string(call.ranks().world));
        return call.group_fd() >= 0 && call.ranks().source == "supervisor" ? 0 : 1;
      },
      {"--ranks", "3"}, true);
  EXPECT_EQ(ended.out, "rank 0 of 3\n");
  EXPECT_EQ(ended.status, 0);
}

TEST(Run, APlanOfManyRanksStartsNone) {
  Ended ended = run(
      [](Invocation& call) {
        call.result(std::to_string(call.ranks().world));
        return call.plan_only() && call.group_fd() < 0 ? 0 : 1;
      },
      {"--ranks", "3", "--plan"}, true);
  EXPECT_EQ(ended.out, "3\n");
  EXPECT_EQ(ended.status, 0);
}

TEST(Run, AGivenSettingThatNothingAppliesIsRefused) {
  auto act = [](Invocation& call) {
    call.settings().applied("training.unroll", "3", "1 draft", "model");
    call.settings().applied("training.beta1", "0.9", "1 draft", "model");
    settle_settings(call);
    return 0;
  };
  Ended good = run(act, {"--set", "training.unroll=3"});
  EXPECT_EQ(good.status, 0);
  EXPECT_EQ(good.err, "sf-test[0]: applied training.unroll=3 to 1 draft by model\n");
  Ended bad = run(act, {"--set", "training.seed=1"});
  EXPECT_EQ(bad.status, 78);
  EXPECT_NE(bad.err.find("training.seed (--set)"), std::string::npos) << bad.err;
}

TEST(Run, ASettingThatTwoRoomsApplyIsRefused) {
  Ended twice = run(
      [](Invocation& call) {
        call.settings().applied("training.unroll", "3", "1 draft", "model");
        call.settings().applied("training.unroll", "3", "1 segment", "engine");
        settle_settings(call);
        return 0;
      },
      {});
  EXPECT_EQ(twice.status, 70);
  EXPECT_NE(twice.err.find("applied training.unroll=3 to 1 segment by engine"), std::string::npos) << twice.err;
}

TEST(Run, AKeySetForThisCommandThatReachesNothingIsAnError) {
  auto body = [](Invocation& call) {
    call.settings().applied("training.unroll", "3", "0 drafts", "train");
    settle_settings(call);
    return 0;
  };
  Ended ended = run(body, {"--set", "training.unroll=3"});
  EXPECT_EQ(ended.status, 78);
  EXPECT_NE(ended.err.find("applied training.unroll=3 to 0 drafts by train"), std::string::npos) << ended.err;
}

TEST(Run, AppliedToNothingIsAWarning) {
  Ended ended = run(
      [](Invocation& call) {
        call.settings().applied("training.shard_frozen_tables", "true", "0 tables", "engine");
        settle_settings(call);
        return 0;
      },
      {"--set", "training.shard_frozen_tables=true"});
  EXPECT_EQ(ended.status, 0);
  EXPECT_NE(ended.err.find("warning: applied training.shard_frozen_tables=true to 0 tables"), std::string::npos);
}

}  // namespace
}  // namespace sf::app
