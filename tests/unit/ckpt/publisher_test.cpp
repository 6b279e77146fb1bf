// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/rng.h"
#include "ckpt/as_published.h"
#include "ckpt/checkpoint.h"
#include "scratch.h"

namespace sf::ckpt {
namespace {

namespace fs = std::filesystem;

fs::path publish(const fs::path& dir, int fill = 0, size_t rows = 8) {
  HostTensor weight = ramp(Dtype::kF32, {static_cast<int64_t>(rows), 16}, fill);
  Publisher publisher(dir);
  write_atomic(publisher.dir() / "notes.txt", "written by the caller\n");
  return publisher.commit({{"w", weight.view()}}, Json::object().set("model_type", "llama"), Manifest());
}

size_t entries(const fs::path& dir) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(dir), fs::directory_iterator()));
}

// Runs `body` in a child; returns its exit status, or 1000 + the signal that ended it.
int in_child(const std::function<int()>& body) {
  pid_t pid = fork();
  if (pid == 0) {
    int status = 99;
    try {
      status = body();
    } catch (const Error& error) {
      status = static_cast<int>(error.code());
    }
    _exit(status);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(Publisher, PublishesUnderTheFinalNameOnly) {
  Scratch scratch;
  EXPECT_EQ(publish(scratch / "out/"), scratch / "out");
  EXPECT_EQ(entries(scratch.path()), 1u);
  EXPECT_TRUE(Checkpoint::open(scratch / "out").verify().empty());
  EXPECT_EQ(read_file(scratch / "out" / "notes.txt"), "written by the caller\n");
}

TEST(Publisher, RefusesAnExistingDirectory) {
  Scratch scratch;
  publish(scratch / "out");
  refusal(Exit::kCantCreate, [&] { publish(scratch / "out"); });
}

TEST(Publisher, RefusesWhatAnotherProcessWritesAndNamesIt) {
  Scratch scratch;
  Publisher owner(scratch / "out");
  std::string text = refusal(Exit::kCantCreate, [&] { publish(scratch / "out"); });
  EXPECT_NE(text.find(fmt::format("is being written by process {}", getpid())), std::string::npos) << text;
}

TEST(Publisher, RefusesAParentThatIsAFile) {
  Scratch scratch;
  write_atomic(scratch / "file", "x");
  refusal(Exit::kCantCreate, [&] { publish(scratch / "file" / "out"); });
}

TEST(Publisher, WithoutCommitLeavesNothing) {
  Scratch scratch;
  {
    Publisher publisher(scratch / "out");
    write_atomic(publisher.dir() / "a", "x");
  }
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST(Publisher, RemovesWhatADeadProcessLeftAndSparesTheLiving) {
  Scratch scratch;
  in_child([&] {
    Publisher publisher(scratch / "out");
    _exit(0);
    return 0;
  });
  ASSERT_EQ(entries(scratch.path()), 1u);
  fs::create_directory(scratch / fmt::format(".out.tmp-{}", getppid()));
  fs::create_directory(scratch / ".out.tmp-notes");
  publish(scratch / "out");
  EXPECT_EQ(entries(scratch.path()), 3u);  // out, the living parent's and the one that is no temporary
}

// A file-size limit stops the write of byte L + 1 with EFBIG, as a full disk does with ENOSPC, at any L.
TEST(Publisher, AFullDiskAtAnyByteIsExit74AndLeavesNothing) {
  Scratch scratch;
  constexpr rlim_t kWhole = 4000;  // above the largest file made here
  int stopped = 0;
  for (rlim_t limit = 0; limit < 1400; limit += 23) {
    int status = in_child([&] {
      signal(SIGXFSZ, SIG_IGN);
      rlimit now{limit, kWhole};
      setrlimit(RLIMIT_FSIZE, &now);
      publish(scratch / "out");
      return 0;
    });
    if (status == 0) break;
    ASSERT_EQ(status, 74) << "at " << limit << " bytes";
    ASSERT_TRUE(fs::is_empty(scratch.path())) << "at " << limit << " bytes";
    ++stopped;
  }
  EXPECT_GT(stopped, 10);
  EXPECT_EQ(in_child([&] { return publish(scratch / "whole"), 0; }), 0);
}

// Two tensors of which ranks 0 and 1 write a part each, and a file of moments beside them.
struct Together {
  HostTensor wide = ramp(Dtype::kF32, {64, 16}, 3), narrow = ramp(Dtype::kBF16, {10}, 5);
  Publisher publisher;
  Parts parts;

  explicit Together(const fs::path& dir) : publisher(dir) {
    publisher.reserve({{"narrow", Dtype::kBF16, {10}}, {"wide", Dtype::kF32, {64, 16}}}, config());
    reserve_safetensors(publisher.dir() / "optimizer.safetensors", {{"wide.exp_avg", Dtype::kF32, {64, 16}}});
  }
  static Json config() { return Json::object().set("model_type", "llama"); }
  void fill(const std::string& file, const std::string& name, const HostTensor& tensor, uint64_t cut) {
    SafetensorsFile open = SafetensorsFile::open(publisher.dir() / file);
    std::span<const std::byte> bytes = tensor.view().span();
    for (int rank : {1, 0}) {
      SafetensorsFiller filler(open.path());
      uint64_t begin = rank == 0 ? 0 : cut, end = rank == 0 ? cut : bytes.size();
      filler.write(*open.find(name), begin, bytes.subspan(begin, end - begin));
      filler.sync();
      auto& of = parts[name];
      of.insert(of.begin(), {begin, end, xxh3_64(bytes.subspan(begin, end - begin)), rank});
    }
  }
  void fill_all() {
    fill("model.safetensors", "wide", wide, 100);
    fill("model.safetensors", "narrow", narrow, 6);
    fill("optimizer.safetensors", "wide.exp_avg", wide, 2048);
  }
};

TEST(Together, PartsOfSeveralRanksMakeTheFilesOfOne) {
  Scratch scratch;
  Together ranks(scratch / "together");
  ranks.fill_all();
  ranks.publisher.commit_reserved(ranks.parts, Manifest());
  Publisher alone(scratch / "alone");
  write_safetensors(alone.dir() / "optimizer.safetensors", {{"wide.exp_avg", ranks.wide.view()}});
  alone.commit({{"wide", ranks.wide.view()}, {"narrow", ranks.narrow.view()}}, Together::config(), Manifest());
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "config.json", "manifest.json"})
    EXPECT_EQ(read_file(scratch / "together" / file), read_file(scratch / "alone" / file)) << file;
}

TEST(Together, APartThatIsNotWhatItsRankWroteIsRefused) {
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    Scratch scratch;
    Together ranks(scratch / "out");
    ranks.fill_all();
    SafetensorsFile open = SafetensorsFile::open(ranks.publisher.dir() / file);
    SafetensorsFiller(open.path()).write(open.tensors()[0], 4000, std::vector<std::byte>{std::byte{0xff}});
    std::string text = refusal(Exit::kIo, [&] { ranks.publisher.commit_reserved(ranks.parts, Manifest()); });
    EXPECT_TRUE(says(text, std::string(open.tensors()[0].name) + " differs from what rank 1 wrote"));
    EXPECT_FALSE(fs::exists(scratch / "out"));
  }
}

TEST(Together, WhatNobodyWroteIsRefused) {
  Scratch scratch;
  Together ranks(scratch / "out");
  ranks.fill_all();
  ranks.parts["wide"].pop_back();
  std::string text = refusal(Exit::kSoftware, [&] { ranks.publisher.commit_reserved(ranks.parts, Manifest()); });
  EXPECT_TRUE(says(text, "nobody wrote wide from byte 100 on"));
}

TEST(Together, ADiskThatIsTooSmallShowsBeforeAnybodyWrites) {
  Scratch scratch;
  int status = in_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    rlimit now{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &now);
    Together ranks(scratch / "out");
    return 0;
  });
  EXPECT_EQ(status, 74);
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST(Publisher, NothingStandsAtTheFinalNameBeforeTheCommit) {
  Scratch scratch;
  Publisher publisher(scratch / "out");
  write_atomic(publisher.dir() / "part", "half");
  EXPECT_FALSE(fs::exists(scratch / "out"));
}

TEST(Publisher, AKillAtAnyInstantLeavesNothingOrTheWhole) {
  Scratch scratch;
  Rng rng(11, "kill");
  int whole = 0, none = 0;
  for (uint64_t round = 0; round < 25; ++round) {
    fs::path out = scratch / fmt::format("out{}", round);
    pid_t pid = fork();
    if (pid == 0) {
      publish(out, static_cast<int>(round), 20000);
      _exit(0);
    }
    usleep(round == 0 ? 0 : static_cast<useconds_t>(rng.below(16000, round)));
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    if (fs::exists(out)) {
      ASSERT_TRUE(Checkpoint::open(out).verify().empty()) << round;
      ++whole;
    } else {
      publish(out);  // the next one clears the dead one's remains
      ++none;
    }
    for (const auto& entry : fs::directory_iterator(scratch.path()))
      ASSERT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
    fs::remove_all(out);
  }
  EXPECT_GT(none, 0);
  EXPECT_GT(whole + none, 24);
}

TEST(Latest, PointsByRenameAndFollowsTheHighestVerifiedStep) {
  Scratch scratch;
  EXPECT_EQ(latest_checkpoint(scratch.path()), std::nullopt);
  publish(scratch / "step-9", 1);
  point_latest(scratch.path(), "step-9");
  EXPECT_EQ(fs::read_symlink(scratch / "latest"), "step-9");
  publish(scratch / "step-10", 2);
  EXPECT_EQ(latest_checkpoint(scratch.path()), scratch / "step-10");  // killed before `latest` moved
  point_latest(scratch.path(), "step-10");
  EXPECT_EQ(fs::read_symlink(scratch / "latest"), "step-10");
  write_atomic(scratch / "step-10" / "config.json", "{}");
  Latest found = newest_checkpoint(scratch.path());
  EXPECT_EQ(found.whole, scratch / "step-9");
  EXPECT_EQ(found.damaged, std::vector<std::string>{"step-10: not what was published: config.json, identity"});
}

TEST(Latest, WhatKilledSavesLeftIsRemovedAndNothingElse) {
  Scratch scratch;
  publish(scratch / "step-9");
  for (const char* name : {".step-10.tmp-17", ".latest.tmp-17", ".step-notes", "notes.tmp-17"})
    write_atomic(scratch / name, "x");
  remove_unfinished(scratch.path());
  EXPECT_EQ(entries(scratch.path()), 3u);
  EXPECT_TRUE(fs::exists(scratch / "step-9") && fs::exists(scratch / ".step-notes"));
}

TEST(Latest, PassesOverADirectoryWithoutItsManifestAndNamesIt) {
  Scratch scratch;
  publish(scratch / "step-9", 1);
  publish(scratch / "step-10", 2);
  fs::remove(scratch / "step-10" / "manifest.json");
  Latest found = newest_checkpoint(scratch.path());
  EXPECT_EQ(found.whole, scratch / "step-9");
  ASSERT_EQ(found.damaged.size(), 1U);
  EXPECT_TRUE(found.damaged[0].starts_with("step-10: it has no manifest.json")) << found.damaged[0];
}

TEST(Latest, FollowsALinkToAnotherName) {
  Scratch scratch;
  publish(scratch / "best");
  point_latest(scratch.path(), "best");
  EXPECT_EQ(latest_checkpoint(scratch.path()), scratch / "best");
}

}  // namespace
}  // namespace sf::ckpt
