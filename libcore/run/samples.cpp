// SPDX-License-Identifier: Apache-2.0
#include "run/samples.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/echoed.h"
#include "stream/client.h"
#include "stream/feature_dir.h"
#include "stream/handle.h"
#include "tool/apply_training.h"
#include "tool/sample_source.h"

namespace sf::run {
namespace {

namespace fs = std::filesystem;
constexpr double kHandleWait = 600;  // the producer loads its target first

// Rank 0's text on every rank; an error of rank 0 becomes everyone's.
std::string shared_text(comm::Group& group, const std::function<std::string()>& read) {
  std::string text;
  std::optional<Error> failure;
  if (group.rank() == 0) {
    try {
      text = read();
    } catch (const Error& error) {
      failure = error;
    }
  }
  Deadline deadline = Deadline::after(Seconds(kHandleWait + 30));
  std::array<int64_t, 2> head{group.rank() == 0 ? static_cast<int64_t>(text.size()) : 0,
                              failure ? static_cast<int64_t>(failure->code()) : 0};
  group.all_reduce_sum(head, {"handle's length", deadline});
  if (failure) throw *failure;
  if (head[1]) throw Echoed(static_cast<Exit>(head[1]), "rank 0 could not read the stream's handle");
  text.resize(static_cast<size_t>(head[0]));
  group.broadcast(std::as_writable_bytes(std::span(text.data(), text.size())), 0, {"handle", deadline});
  return text;
}

stream::StreamOptions stream_options(app::Invocation& invocation, comm::Group& group, const stream::Contract& wanted,
                                     const tool::StreamSettings& settings) {
  stream::StreamOptions options{.wanted = wanted, .rank = group.rank(), .world = group.world()};
  options.code = app::build_info().get_string("version", "");
  options.marks = {.high = settings.credit_bytes, .low = settings.low_bytes, .cap = settings.cap_bytes};
  options.heartbeat_s = settings.heartbeat_s;
  options.rejoin_s = settings.rejoin_deadline_s;
  options.explain_s = settings.report_s;
  options.report = [&invocation](const std::string& line) { invocation.log(line); };
  return options;
}

// Until `there` says so or the deadline passes: a handle may be minutes away, a stop is not to wait for it.
void wait_or_stop(app::Invocation& invocation, Deadline deadline, const std::function<bool(Seconds)>& there) {
  while (!there(Seconds(0.1)) && !deadline.passed())
    SF_CHECK(invocation.stop() != app::Stop::kFinishStep, Exit::kAgain,
             "stopped while waiting for a stream's handle; nothing was begun: run the same line again");
}

bool pipe_is_ready(Seconds most) {
  pollfd waiting{STDIN_FILENO, POLLIN, 0};
  return ::poll(&waiting, 1, static_cast<int>(most.count() * 1000)) > 0;
}

// The handles that are there: a line for each --from, empty for one that has not come. One is waited for.
std::string handles_of_files(app::Invocation& invocation, const std::vector<std::string>& from) {
  auto there = [](const std::string& one) {
    std::error_code ignored;
    return one != "-" && fs::exists(one, ignored);
  };
  auto any = [&](Seconds most) {
    if (std::any_of(from.begin(), from.end(), there)) return true;
    std::this_thread::sleep_for(most);
    return false;
  };
  Deadline deadline = Deadline::after(Seconds(kHandleWait));
  if (!any(Seconds(0)))
    invocation.log(fmt::format("waiting up to {:.0f} s for a handle in {}", kHandleWait, fmt::join(from, ", ")));
  wait_or_stop(invocation, deadline, any);
  SF_CHECK(any(Seconds(0)), Exit::kUnavailable, "no handle file {} appeared within {:.0f} s", fmt::join(from, ", "),
           kHandleWait);
  std::string lines;
  for (const std::string& one : from) lines += there(one) ? stream::wait_for_handle_file(one, deadline).line() : "\n";
  return lines;
}

// A producer that ends before it names its stream is a peer that is gone; why, it said itself.
stream::Handle handle_from_pipe(Deadline deadline) {
  try {
    return stream::read_handle(STDIN_FILENO, deadline);
  } catch (const Error& error) {
    if (error.code() != Exit::kNoInput) throw;
    fail(Exit::kUnavailable, "the producer ended before it named its stream; its own last line says why");
  }
}

// Rank 0 reads the handles and tells them to all.
std::unique_ptr<stream::Source> open_stream(app::Invocation& invocation, comm::Group& group,
                                            const stream::Contract& wanted, const std::vector<std::string>& from,
                                            const tool::StreamSettings& settings) {
  stream::StreamOptions options = stream_options(invocation, group, wanted, settings);
  auto pipe = std::find(from.begin(), from.end(), "-");
  if (pipe != from.end()) options.life_fd = invocation.life_fd();
  std::string lines = shared_text(group, [&] {
    if (pipe == from.end()) return handles_of_files(invocation, from);
    Deadline deadline = Deadline::after(Seconds(kHandleWait));
    wait_or_stop(invocation, deadline, pipe_is_ready);
    std::string text;
    for (const std::string& one : from) text += one == "-" ? handle_from_pipe(deadline).line() : "\n";
    return text;
  });
  std::vector<stream::From> producers;
  for (const std::string& one : from) {
    size_t end = lines.find('\n');
    producers.push_back({lines.substr(0, end), one == "-" ? fs::path() : fs::path(one)});
    lines.erase(0, end + 1);
  }
  return stream::StreamSource::connect(std::move(producers), std::move(options));
}

const stream::StreamSource* streamed(const stream::Source& source) {
  const stream::Source* inner = &source;
  if (auto* tee = dynamic_cast<const stream::TeeSource*>(inner)) inner = &tee->inner();
  return dynamic_cast<const stream::StreamSource*>(inner);
}

}  // namespace

std::unique_ptr<stream::Source> open_source(app::Invocation& invocation, comm::Group& group,
                                            const stream::Contract& wanted) {
  const std::vector<std::string> from = tool::from_of(invocation);
  const tool::StreamSettings settings = tool::apply_stream(invocation);
  if (tool::lies_in_directory(from)) return stream::DirSource::open(from.front(), wanted);
  std::unique_ptr<stream::Source> source = open_stream(invocation, group, wanted, from, settings);
  if (!invocation.has("tee")) return source;
  stream::FeatureWriter writer(invocation.get("tee"), source->contract(), group.rank(), invocation.command_line());
  return std::make_unique<stream::TeeSource>(std::move(source), std::move(writer));
}

bool producer_stopping(const stream::Source& source) {
  const stream::StreamSource* stream = streamed(source);
  return stream && stream->producer_stopping();
}

void refuse(const stream::Source& source, const Error& why) {
  if (const stream::StreamSource* stream = streamed(source)) stream->refuse(why);
}

void explain_stream(app::Invocation& invocation, comm::Group& group, const stream::Source& source) {
  const stream::StreamSource* stream = streamed(source);
  if (!stream) return;
  stream::StreamCounts counts = stream->counts();
  std::vector<uint64_t*> sums = {&counts.tally.asked,     &counts.tally.trained,    &counts.tally.voids,
                                 &counts.tally.in_flight, &counts.tally.unanswered, &counts.tally.again,
                                 &counts.tally.late,      &counts.repeated,         &counts.corrupt};
  for (stream::Served& one : counts.producers)
    sums.insert(sums.end(), {&one.tally.asked, &one.tally.answered, &one.tally.again, &one.tally.lost,
                             &one.tally.overtaken, &one.tally.unanswered});
  std::vector<int64_t> all;
  for (const uint64_t* sum : sums) all.push_back(static_cast<int64_t>(*sum));
  for (double seconds : {counts.elapsed_s, counts.waited_s}) all.push_back(static_cast<int64_t>(seconds * 1e6));
  group.all_reduce_sum(all, {"counts of the stream", Deadline::after(Seconds(kHandleWait))});
  for (size_t i = 0; i < sums.size(); ++i) *sums[i] = static_cast<uint64_t>(all[i]);
  counts.elapsed_s = static_cast<double>(all[sums.size()]) / 1e6;
  counts.waited_s = static_cast<double>(all[sums.size() + 1]) / 1e6;
  if (group.rank() == 0) invocation.log(stream::explain(counts, group.world(), group.world()));
  std::optional<std::string> wrong = counts.tally.wrong();
  SF_CHECK(!wrong, Exit::kSoftware, "the stream's counters do not add up: {}", wrong.value_or(""));
}

void publish_tee(app::Invocation& invocation, comm::Group& group, stream::Source& source, bool ended_well) {
  auto* tee = dynamic_cast<stream::TeeSource*>(&source);
  if (!tee || !ended_well) return;
  group.barrier({"tee closed", Deadline::after(Seconds(kHandleWait))});
  if (group.rank() == 0) invocation.log("kept what was streamed in " + tee->writer().publish().string());
}

}  // namespace sf::run
