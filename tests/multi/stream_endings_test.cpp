// SPDX-License-Identifier: Apache-2.0
// Every ending of a stream, with real processes on both sides: producer and trainer ranks are forked from this one,
// which holds no thread and no ZeroMQ of its own.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/deadline.h"
#include "base/error.h"
#include "base/file.h"
#include "stream/client.h"
#include "stream/producer.h"

namespace sf::stream {
namespace {

namespace fs = std::filesystem;

constexpr int kPublished = 75;  // what a trainer of these tests returns after it "published" on request

Contract contract_of_tests() {
  Contract contract;
  contract.algorithm = "eagle3";
  contract.tokenizer = "k0";
  contract.rows = 1000;
  contract.order_seed = 5;
  return contract;
}

Sample compute(uint64_t position) {
  Sample sample;
  sample.row = place_of(position, 1000, 5).row;
  HostTensor tensor(Dtype::kI64, {100});
  for (int64_t& value : tensor.as<int64_t>()) value = static_cast<int64_t>(sample.row);
  sample.tensors.push_back({"input_ids", tensor});
  return sample;
}

std::atomic<bool> stop_asked{false};
void on_signal(int) {
  stop_asked = true;
}

// A child process with its exit status, killed if the test leaves it behind.
class Child {
 public:
  explicit Child(const std::function<int()>& body) : pid_(fork()) {
    if (pid_ != 0) return;
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    signal(SIGPIPE, SIG_IGN);
    int status = 70;
    try {
      status = body();
    } catch (const Error& error) {
      fprintf(stderr, "[%d] %s\n", getpid(), error.what());
      status = static_cast<int>(error.code());
    }
    _exit(status);
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ~Child() {
    if (pid_ > 0) kill(SIGKILL), wait();
  }
  void kill(int number) const { ::kill(pid_, number); }
  // Exit status, 128 + n for a death by signal, -1 if it lives after 5 s.
  int wait() {
    Deadline deadline = Deadline::after_ms(5000);
    int status = 0;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
      if (deadline.passed()) return -1;
      usleep(2000);
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

// The pipe of `sf-capture | sf-train`, and a folder where the processes leave marks for each other and for the test.
class Scene {
 public:
  Scene() {
    std::string form = (fs::temp_directory_path() / "sf-endings-XXXXXX").string();
    dir_ = mkdtemp(form.data());
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    reader = ends[0];
    writer = ends[1];
  }
  ~Scene() {
    close_pipe();
    std::error_code ignored;
    fs::remove_all(dir_, ignored);
  }
  // The parent's ends: as long as it holds them, nobody's death would show.
  void close_pipe() {
    if (reader >= 0) ::close(reader), ::close(writer);
    reader = writer = -1;
  }
  fs::path path(const std::string& name) const { return dir_ / name; }
  void mark(const std::string& name, const std::string& text = "x") const { write_atomic(path(name), text); }
  bool await(const std::string& name) const {
    Deadline deadline = Deadline::after_ms(5000);
    while (!fs::exists(path(name))) {
      if (deadline.passed()) return false;
      usleep(1000);
    }
    return true;
  }
  std::string text(const std::string& name) const { return fs::exists(path(name)) ? read_file(path(name)) : ""; }

  int reader, writer;

 private:
  fs::path dir_;
};

ProducerOptions producer_options() {
  ProducerOptions options;
  options.contract = contract_of_tests();
  options.heartbeat_s = 0.05;
  options.silent_s = 0.7;
  options.stop_s = 0.5;
  options.join_s = 3;
  options.rejoin_s = 0;
  return options;
}

StreamOptions trainer_options(int rank, int world) {
  StreamOptions options;
  options.rank = rank;
  options.world = world;
  options.heartbeat_s = 0.05;
  options.silent_s = 0.7;
  options.retry_s = 0.3;
  options.wanted.tokenizer = "k0";
  return options;
}

// sf-capture behind a pipe: the handle goes down the pipe, whose reader's life is watched.
int capture_to_pipe(Scene& scene) {
  ::close(scene.reader);
  ProducerOptions options = producer_options();
  options.life_fd = scene.writer;
  Producer producer(options, compute);
  write_all(scene.writer, producer.handle().line(), "pipe");
  Ending ending = producer.serve([] { return stop_asked.load(); });
  scene.mark("capture", message_of(ending));
  return static_cast<int>(exit_of(ending));
}

// sf-capture behind a handle file.
int capture_to_file(Scene& scene, double rejoin_s) {
  scene.close_pipe();
  ProducerOptions options = producer_options();
  options.rejoin_s = rejoin_s;
  Producer producer(options, compute);
  write_handle_file(scene.path("handle"), producer.handle());
  return static_cast<int>(exit_of(producer.serve([] { return stop_asked.load(); })));
}

// A trainer rank: positions rank, rank + world, ... below `until` (or for ever), a mark once three have come. On TERM
// it finishes its step, "publishes" and says BYE; on a lost producer it "publishes" and passes the status on.
int train(Scene& scene, StreamSource& source, int rank, int world, uint64_t from, uint64_t until) {
  uint64_t position = from + static_cast<uint64_t>(rank);
  try {
    for (int count = 1; position < until; position += static_cast<uint64_t>(world), ++count) {
      source.want(std::vector<uint64_t>{position, position + static_cast<uint64_t>(world)});
      Sample sample = source.get(position, Deadline::after_ms(4000));
      if (sample.at("input_ids").as<int64_t>()[7] != static_cast<int64_t>(place_of(position, 1000, 5).row)) return 65;
      if (count == 3) scene.mark(fmt::format("running{}", rank));
      if (stop_asked || source.producer_stopping()) {
        scene.mark(fmt::format("published{}", rank), std::to_string(position + 1));
        source.finish();
        return kPublished;
      }
      usleep(2000);
    }
  } catch (const Error& error) {
    scene.mark(fmt::format("published{}", rank), std::to_string(position));
    scene.mark(fmt::format("error{}", rank), error.what());
    throw;
  }
  source.finish();
  return 0;
}

int train_from_pipe(Scene& scene, uint64_t until, const std::string& tokenizer = "k0") {
  ::close(scene.writer);
  Handle handle = read_handle(scene.reader, Deadline::after_ms(3000));
  StreamOptions options = trainer_options(0, 1);
  options.wanted.tokenizer = tokenizer;
  options.life_fd = scene.reader;
  auto source = StreamSource::connect(handle.line(), options);
  return train(scene, *source, 0, 1, 0, until);
}

int train_from_file(Scene& scene, int rank, int world, uint64_t until, double rejoin_s, uint64_t from = 0) {
  scene.close_pipe();
  Handle handle = wait_for_handle_file(scene.path("handle"), Deadline::after_ms(3000));
  StreamOptions options = trainer_options(rank, world);
  options.rejoin_s = rejoin_s;
  options.report = [&](const std::string& line) {
    if (line.find("took over") != std::string::npos) scene.mark(fmt::format("rejoined{}", rank));
  };
  auto source = StreamSource::connect({{handle.line(), scene.path("handle")}}, options);
  return train(scene, *source, rank, world, from, until);
}

constexpr uint64_t kForEver = UINT64_MAX;

TEST(Endings, ATrainerThatIsDoneSaysByeAndBothExit0) {
  Scene scene;
  Child capture([&] { return capture_to_pipe(scene); });
  Child trainer([&] { return train_from_pipe(scene, 50); });
  scene.close_pipe();
  EXPECT_EQ(trainer.wait(), 0);
  EXPECT_EQ(capture.wait(), 0);
}

TEST(Endings, TermOnCaptureEndsWithTheTrainersBye) {
  Scene scene;
  Child capture([&] { return capture_to_pipe(scene); });
  Child trainer([&] { return train_from_pipe(scene, kForEver); });
  scene.close_pipe();
  ASSERT_TRUE(scene.await("running0"));
  capture.kill(SIGTERM);
  EXPECT_EQ(trainer.wait(), kPublished);
  EXPECT_EQ(capture.wait(), 0);
}

TEST(Endings, TermOnCaptureWithoutByeEndsAtItsDeadlineWith69) {
  Scene scene;
  Child capture([&] { return capture_to_file(scene, 0); });
  Child trainer([&] {
    scene.close_pipe();
    auto source = StreamSource::connect(wait_for_handle_file(scene.path("handle"), Deadline::after_ms(3000)).line(),
                                        trainer_options(0, 1));
    scene.mark("running0");
    for (;;) pause();  // its heart beats, but it never asks and never says BYE
    return 0;
  });
  ASSERT_TRUE(scene.await("running0"));
  capture.kill(SIGTERM);
  EXPECT_EQ(capture.wait(), 69);
}

TEST(Endings, TermOnTheTrainerPublishesSaysByeAndCaptureExits0) {
  Scene scene;
  Child capture([&] { return capture_to_pipe(scene); });
  Child trainer([&] { return train_from_pipe(scene, kForEver); });
  scene.close_pipe();
  ASSERT_TRUE(scene.await("running0"));
  trainer.kill(SIGTERM);
  EXPECT_EQ(trainer.wait(), kPublished);
  EXPECT_EQ(capture.wait(), 0);
  EXPECT_NE(scene.text("published0"), "");
}

TEST(Endings, AKilledProducerBehindAPipeEndsTheTrainerWith69SayingWho) {
  Scene scene;
  Child capture([&] { return capture_to_pipe(scene); });
  Child trainer([&] { return train_from_pipe(scene, kForEver); });
  scene.close_pipe();
  ASSERT_TRUE(scene.await("running0"));
  capture.kill(SIGKILL);
  EXPECT_EQ(trainer.wait(), 69);
  EXPECT_NE(scene.text("published0"), "");
  EXPECT_NE(scene.text("error0").find("has closed the pipe without BYE"), std::string::npos) << scene.text("error0");
}

TEST(Endings, AKilledTrainerBehindAPipeEndsCaptureWith69) {
  Scene scene;
  Child capture([&] { return capture_to_pipe(scene); });
  Child trainer([&] { return train_from_pipe(scene, kForEver); });
  scene.close_pipe();
  ASSERT_TRUE(scene.await("running0"));
  trainer.kill(SIGKILL);
  EXPECT_EQ(capture.wait(), 69);
  EXPECT_EQ(scene.text("capture"), message_of(Ending::kReaderGone));
}

TEST(Endings, AReaderThatDiesBeforeItJoinsEndsCaptureWith69) {
  Scene scene;
  Child capture([&] { return capture_to_pipe(scene); });
  Child trainer([&] {
    ::close(scene.writer);
    read_handle(scene.reader, Deadline::after_ms(3000));
    return 1;
  });
  scene.close_pipe();
  EXPECT_EQ(trainer.wait(), 1);
  EXPECT_EQ(capture.wait(), 69);
}

TEST(Endings, ControlCReachesBothSidesAndEndsInOnePublishedCheckpoint) {
  Scene scene;
  Child capture([&] { return capture_to_pipe(scene); });
  Child trainer([&] { return train_from_pipe(scene, kForEver); });
  scene.close_pipe();
  ASSERT_TRUE(scene.await("running0"));
  capture.kill(SIGINT);
  trainer.kill(SIGINT);
  EXPECT_EQ(trainer.wait(), kPublished);
  EXPECT_EQ(capture.wait(), 0);
  EXPECT_NE(scene.text("published0"), "");
}

TEST(Endings, BothSidesSuspendedForLongGoOnAfterwards) {
  Scene scene;
  Child capture([&] { return capture_to_pipe(scene); });
  Child trainer([&] { return train_from_pipe(scene, 400); });
  scene.close_pipe();
  ASSERT_TRUE(scene.await("running0"));
  for (int number : {SIGSTOP, SIGCONT}) {
    capture.kill(number);
    trainer.kill(number);
    if (number == SIGSTOP) usleep(1'200'000);  // longer than silent_s
  }
  EXPECT_EQ(trainer.wait(), 0);
  EXPECT_EQ(capture.wait(), 0);
}

TEST(Endings, AProducerBehindAHandleFileMayBeKilledAndRestarted) {
  Scene scene;
  Child first([&] { return capture_to_file(scene, 0); });
  Child trainer([&] { return train_from_file(scene, 0, 1, 300, 3); });
  ASSERT_TRUE(scene.await("running0"));
  first.kill(SIGKILL);
  Child second([&] { return capture_to_file(scene, 0); });
  EXPECT_EQ(trainer.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
  EXPECT_TRUE(fs::exists(scene.path("rejoined0")));
}

TEST(Endings, ARestartedProducerIsTakenLongBeforeTheKilledOneCountsAsSilent) {
  Scene scene;
  Child first([&] { return capture_to_file(scene, 0); });
  Child trainer([&] {
    scene.close_pipe();
    StreamOptions options = trainer_options(0, 1);
    options.silent_s = 60;
    options.rejoin_s = 3;
    auto source = StreamSource::connect(
        {{wait_for_handle_file(scene.path("handle"), Deadline::after_ms(3000)).line(), scene.path("handle")}}, options);
    return train(scene, *source, 0, 1, 0, 300);
  });
  ASSERT_TRUE(scene.await("running0"));
  first.kill(SIGKILL);
  Child second([&] { return capture_to_file(scene, 0); });
  EXPECT_EQ(trainer.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
}

TEST(Endings, AProducerBehindAHandleFileThatStaysAwayEndsTheTrainerWith69) {
  Scene scene;
  Child capture([&] { return capture_to_file(scene, 0); });
  Child trainer([&] { return train_from_file(scene, 0, 1, kForEver, 0.5); });
  ASSERT_TRUE(scene.await("running0"));
  capture.kill(SIGKILL);
  EXPECT_EQ(trainer.wait(), 69);
  EXPECT_NE(scene.text("error0").find("no other came within"), std::string::npos) << scene.text("error0");
  EXPECT_NE(scene.text("published0"), "");
}

TEST(Endings, ARestartedProducerOfAnotherContractIsRefusedWith76) {
  Scene scene;
  Child first([&] { return capture_to_file(scene, 0); });
  Child trainer([&] { return train_from_file(scene, 0, 1, kForEver, 3); });
  ASSERT_TRUE(scene.await("running0"));
  first.kill(SIGKILL);
  Child second([&] {
    scene.close_pipe();
    ProducerOptions options = producer_options();
    options.contract.data = "other rows";
    Producer producer(options, compute);
    write_handle_file(scene.path("handle"), producer.handle());
    return static_cast<int>(exit_of(producer.serve([] { return stop_asked.load(); })));
  });
  EXPECT_EQ(trainer.wait(), 76);
  EXPECT_NE(scene.text("error0").find("data: wanted \"\", found \"other rows\""), std::string::npos)
      << scene.text("error0");
}

TEST(Endings, AKilledTrainerBehindAHandleFileMayBeRestartedAndGoesOn) {
  Scene scene;
  Child capture([&] { return capture_to_file(scene, 3); });
  Child first([&] { return train_from_file(scene, 0, 1, kForEver, 0); });
  ASSERT_TRUE(scene.await("running0"));
  first.kill(SIGKILL);
  first.wait();
  Child second([&] { return train_from_file(scene, 0, 1, 30, 0, 3); });
  EXPECT_EQ(second.wait(), 0);
  EXPECT_EQ(capture.wait(), 0);
}

TEST(Endings, TwoRanksKilledMayComeBackAsOne) {
  Scene scene;
  Child capture([&] { return capture_to_file(scene, 3); });
  Child zero([&] { return train_from_file(scene, 0, 2, kForEver, 0); });
  Child one([&] { return train_from_file(scene, 1, 2, kForEver, 0); });
  ASSERT_TRUE(scene.await("running0") && scene.await("running1"));
  zero.kill(SIGKILL);
  one.kill(SIGKILL);
  zero.wait();
  one.wait();
  Child alone([&] { return train_from_file(scene, 0, 1, 30, 0); });
  EXPECT_EQ(alone.wait(), 0);
  EXPECT_EQ(capture.wait(), 0);
}

TEST(Endings, TrainersThatAllDiedEndCaptureBehindAHandleFileWith69) {
  Scene scene;
  Child capture([&] { return capture_to_file(scene, 0.3); });
  Child trainer([&] { return train_from_file(scene, 0, 1, kForEver, 0); });
  ASSERT_TRUE(scene.await("running0"));
  trainer.kill(SIGKILL);
  EXPECT_EQ(capture.wait(), 69);
}

TEST(Endings, AKilledRankIsNamedWhileTheOtherIsServedToItsEnd) {
  Scene scene;
  Child capture([&] {
    scene.close_pipe();
    ProducerOptions options = producer_options();
    options.report = [&](const std::string& line) {
      if (line.starts_with("trainer rank 1 (")) scene.mark("named", line);
    };
    Producer producer(options, compute);
    write_handle_file(scene.path("handle"), producer.handle());
    return static_cast<int>(exit_of(producer.serve([] { return false; })));
  });
  Child zero([&] { return train_from_file(scene, 0, 2, 600, 0); });
  Child one([&] { return train_from_file(scene, 1, 2, kForEver, 0); });
  ASSERT_TRUE(scene.await("running0") && scene.await("running1"));
  one.kill(SIGKILL);
  EXPECT_TRUE(scene.await("named"));
  EXPECT_EQ(zero.wait(), 0);
  EXPECT_EQ(capture.wait(), 69) << "one of the ranks went without BYE";
}

TEST(Endings, ATrainerThatRefusesTheStreamEndsBothWith76AndTheReason) {
  Scene scene;
  Child capture([&] {
    try {
      return capture_to_pipe(scene);
    } catch (const Error& error) {
      scene.mark("capture", error.what());
      throw;
    }
  });
  Child trainer([&] { return train_from_pipe(scene, 50, "other"); });
  scene.close_pipe();
  EXPECT_EQ(trainer.wait(), 76);
  EXPECT_EQ(capture.wait(), 76);
  EXPECT_NE(scene.text("capture").find("tokenizer: wanted \"other\", found \"k0\""), std::string::npos)
      << scene.text("capture");
}

TEST(Endings, ATrainerThatRefusesTheStreamOfAHandleFileLeavesItToOthers) {
  Scene scene;
  Child capture([&] { return capture_to_file(scene, 3); });
  ASSERT_TRUE(scene.await("handle"));
  Child picky([&] {
    StreamOptions options = trainer_options(0, 1);
    options.wanted.tokenizer = "other";
    StreamSource::connect(wait_for_handle_file(scene.path("handle"), Deadline::after_ms(3000)).line(), options);
    return 0;
  });
  EXPECT_EQ(picky.wait(), 76);
  Child trainer([&] { return train_from_file(scene, 0, 1, 30, 0); });
  EXPECT_EQ(trainer.wait(), 0);
  EXPECT_EQ(capture.wait(), 0);
}

TEST(Endings, AContractThatDiffersEndsTheTrainerWith76WithinTheFirstSecond) {
  Scene scene;
  Child capture([&] { return capture_to_file(scene, 0); });
  ASSERT_TRUE(scene.await("handle"));
  double start = monotonic_s();
  Child trainer([&] {
    StreamOptions options = trainer_options(0, 1);
    options.wanted.tokenizer = "other";
    StreamSource::connect(wait_for_handle_file(scene.path("handle"), Deadline::after_ms(3000)).line(), options);
    return 0;
  });
  EXPECT_EQ(trainer.wait(), 76);
  EXPECT_LT(monotonic_s() - start, 1.0);
}

}  // namespace
}  // namespace sf::stream
