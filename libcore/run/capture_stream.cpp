// SPDX-License-Identifier: Apache-2.0
// A capture as a stream: the first rank serves it, and all compute.
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "run/capture_job.h"
#include "stream/producer.h"
#include "tool/outputs.h"
#include "tool/target_settings.h"

namespace sf::run {
namespace {

// What the first rank tells the others: before each pass which positions they compute with it, at least every kBeatS
// that it is there, and last how all end.
struct Word {
  int64_t positions = 0;  // that follow; 0: it is there; kEnd: the end
  int64_t status = 0;
};
constexpr int64_t kEnd = -1;
constexpr double kBeatS = 1;
constexpr size_t kPositionsOfARank = 64;  // at most, in a pass

class Conductor {
 public:
  Conductor(const CaptureJob& job, Passes& passes) : job_(job), passes_(passes) {}

  // The first rank's.
  std::vector<stream::Sample> compute(std::span<const uint64_t> positions) {
    tell({.positions = std::ssize(positions)});
    std::vector<uint64_t> all(positions.begin(), positions.end());
    if (many()) group().broadcast(std::as_writable_bytes(std::span(all)), 0, passes_.call("positions"));
    return pass(all);
  }
  void beat() {
    if (monotonic_s() - told_ >= kBeatS) tell({});
  }
  void end(Exit status) {
    if (!std::exchange(ended_, true)) tell({.positions = kEnd, .status = static_cast<int64_t>(status)});
  }

  // The others': until the end; its status.
  int follow() {
    for (;;) {
      Word word;
      group().broadcast(std::as_writable_bytes(std::span(&word, 1)), 0, passes_.call("the first rank's word"));
      if (word.positions == kEnd) return static_cast<int>(word.status);
      if (word.positions == 0) continue;
      std::vector<uint64_t> positions(static_cast<size_t>(word.positions));
      group().broadcast(std::as_writable_bytes(std::span(positions)), 0, passes_.call("positions"));
      pass(positions);
    }
  }

 private:
  comm::Group& group() const { return passes_.group(); }
  bool many() const { return group().world() > 1; }

  void tell(Word word) {
    if (many())
      group().broadcast(std::as_writable_bytes(std::span(&word, 1)), 0, passes_.call("the first rank's word"));
    told_ = monotonic_s();
  }

  // On the first rank the samples of the first of the positions.
  std::vector<stream::Sample> pass(std::span<const uint64_t> positions) {
    std::vector<const text::ChatRow*> rows;
    for (uint64_t position : positions)
      rows.push_back(&job_.rows[stream::place_of(position, job_.contract.rows, job_.contract.order_seed).row]);
    std::vector<stream::Sample> mine;
    const size_t done = passes_.run(rows, [&](size_t index, stream::Sample sample) {
      sample.position = index;  // its place in the pass, until the producer stamps it
      mine.push_back(std::move(sample));
    });
    std::vector<stream::Sample> all(job_.first() ? done : 0);
    for (std::vector<stream::Sample>& one : samples_on_first_rank(group(), mine, passes_.call("samples")))
      for (stream::Sample& sample : one) all.at(sample.position) = std::move(sample);
    return all;
  }

  const CaptureJob& job_;
  Passes& passes_;
  double told_ = monotonic_s();
  bool ended_ = false;
};

stream::ProducerOptions producer_options(app::Invocation& invocation, const stream::Contract& contract) {
  const tool::ProducerSettings asked = tool::apply_producer(invocation.settings(), invocation.has("handle-file"));
  stream::ProducerOptions options;
  options.contract = contract;
  options.code = app::build_info().get_string("version", "");
  options.cache_bytes = asked.cache_bytes;
  options.credit_bytes = asked.credit_bytes;
  options.heartbeat_s = asked.heartbeat_s;
  options.stop_s = asked.stop_s;
  options.bind = asked.bind;
  options.encrypt = asked.encrypt;
  options.explain_s = asked.explain_s;
  options.rejoin_s = asked.rejoin_s;
  options.report = [&invocation](const std::string& line) { invocation.log(line); };
  return options;
}

bool is_pipe(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode));
}

// The rows of the self-test as the run's go: to the first rank, over sockets, and back.
Carrier carrier_of(const CaptureJob& job, const stream::ProducerOptions& run) {
  stream::ProducerOptions options;
  options.contract = run.contract;
  options.code = run.code;
  options.encrypt = run.encrypt || !stream::is_loopback(run.bind);
  return [&job, options](std::vector<stream::Sample> mine) {
    const comm::Call call = job.passes().call("rows of the self-test");
    std::vector<std::vector<stream::Sample>> all = samples_on_first_rank(*job.group, mine, call);
    on_first_rank(*job.group, "self-test", [&] {
      std::vector<stream::Sample> one;
      for (std::vector<stream::Sample>& samples : all) std::ranges::move(samples, std::back_inserter(one));
      one = through_sockets(options, std::move(one));
      auto next = one.begin();
      for (std::vector<stream::Sample>& samples : all)
        for (stream::Sample& sample : samples) sample = std::move(*next++);
    });
    return samples_from_first_rank(*job.group, all, call);
  };
}

// The first rank's: until an ending, which is told.
int serve(app::Invocation& invocation, const CaptureJob& job, stream::ProducerOptions options, Passes& passes,
          Conductor& conductor) {
  const bool by_file = invocation.has("handle-file");
  if (!by_file && is_pipe(STDOUT_FILENO)) options.life_fd = STDOUT_FILENO;
  const size_t most = passes.group().world() > 1 ? kPositionsOfARank * static_cast<size_t>(passes.group().world()) : 1;
  stream::Producer producer(
      options, [&](std::span<const uint64_t> positions) { return conductor.compute(positions); }, most);
  if (by_file)
    stream::write_handle_file(invocation.get("handle-file"), producer.handle());
  else
    invocation.result(producer.handle().to_json().dump());
  const stream::Ending ending = producer.serve([&] {
    conductor.beat();
    return invocation.stop() != app::Stop::kNone;
  });
  if (by_file) stream::remove_handle_file(invocation.get("handle-file"), producer.handle().id);
  invocation.log(producer.explain());
  conductor.end(stream::exit_of(ending));
  if (ending == stream::Ending::kBye) tell_memory(invocation, job, nullptr);
  const stream::ProducerCounts done = producer.counts();
  std::string summary =
      fmt::format("{} samples sent ({} void, {} from the cache), {} tokens computed at {:.1f} tokens/s; {}", done.sent,
                  done.voids, done.cached, passes.tokens(), passes.tokens_per_s(), stream::message_of(ending));
  // An error is told as one, which -q does not silence.
  if (Exit exit = stream::exit_of(ending); exit != Exit::kOk) fail(exit, "{}", summary);
  invocation.log(summary);
  return 0;
}

// The others end as the first rank does; one that is gone, and was what ended it, need not hear.
void tell_end(Conductor& conductor, Exit status) {
  try {
    conductor.end(status);
  } catch (const Error&) {
  }
}

}  // namespace

int capture_to_stream(app::Invocation& invocation, CaptureJob& job) {
  const stream::ProducerOptions options = producer_options(invocation, job.contract);
  if (invocation.has("handle-file")) tool::refuse_all_but_handle(invocation.get("handle-file"));
  check_first_rows(invocation, job, carrier_of(job, options));
  Passes passes = job.passes();
  Conductor conductor(job, passes);
  if (job.first()) {
    try {
      return serve(invocation, job, options, passes, conductor);
    } catch (const Error& error) {
      tell_end(conductor, error.code());
      throw;
    }
  }
  invocation.stop();  // who is asked to stop is the first rank, which tells how all end
  const int status = conductor.follow();
  if (status == 0) tell_memory(invocation, job, nullptr);
  return status;
}

}  // namespace sf::run
