// SPDX-License-Identifier: Apache-2.0
#include "run/samples.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "base/error.h"
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
  if (head[1]) fail(static_cast<Exit>(head[1]), "rank 0 could not read the stream's handle");
  text.resize(static_cast<size_t>(head[0]));
  group.broadcast(std::as_writable_bytes(std::span(text.data(), text.size())), 0, {"handle", deadline});
  return text;
}

stream::StreamOptions stream_options(app::Invocation& invocation, comm::Group& group, const stream::Contract& wanted,
                                     const tool::StreamSettings& settings) {
  stream::StreamOptions options{.wanted = wanted, .rank = group.rank(), .world = group.world()};
  options.code = app::build_info().get_string("version", "");
  options.credit_bytes = settings.credit_bytes;
  options.heartbeat_s = settings.heartbeat_s;
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

bool file_is_there(const fs::path& path, Seconds most) {
  std::error_code ignored;
  if (fs::exists(path, ignored)) return true;
  std::this_thread::sleep_for(most);
  return false;
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

std::unique_ptr<stream::Source> open_stream(app::Invocation& invocation, comm::Group& group,
                                            const stream::Contract& wanted, const std::string& from,
                                            const tool::StreamSettings& settings) {
  stream::StreamOptions options = stream_options(invocation, group, wanted, settings);
  bool pipe = from == "-";
  if (pipe) {
    options.life_fd = invocation.life_fd();
  } else {
    options.handle_file = from;
    options.rejoin_s = settings.rejoin_deadline_s;
  }
  std::string handle = shared_text(group, [&] {
    Deadline deadline = Deadline::after(Seconds(kHandleWait));
    wait_or_stop(invocation, deadline,
                 [&](Seconds most) { return pipe ? pipe_is_ready(most) : file_is_there(from, most); });
    return (pipe ? handle_from_pipe(deadline) : stream::wait_for_handle_file(from, deadline)).line();
  });
  return stream::StreamSource::connect(handle, std::move(options));
}

const stream::StreamSource* streamed(const stream::Source& source) {
  const stream::Source* inner = &source;
  if (auto* tee = dynamic_cast<const stream::TeeSource*>(inner)) inner = &tee->inner();
  return dynamic_cast<const stream::StreamSource*>(inner);
}

}  // namespace

std::unique_ptr<stream::Source> open_source(app::Invocation& invocation, comm::Group& group,
                                            const stream::Contract& wanted) {
  const std::string from = tool::from_of(invocation);
  const tool::StreamSettings settings = tool::apply_stream(invocation);
  if (from != "-" && fs::is_directory(from)) return stream::DirSource::open(from, wanted);
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

void publish_tee(app::Invocation& invocation, comm::Group& group, stream::Source& source, bool ended_well) {
  auto* tee = dynamic_cast<stream::TeeSource*>(&source);
  if (!tee || !ended_well) return;
  group.barrier({"tee closed", Deadline::after(Seconds(kHandleWait))});
  if (group.rank() == 0) invocation.log("kept what was streamed in " + tee->writer().publish().string());
}

}  // namespace sf::run
