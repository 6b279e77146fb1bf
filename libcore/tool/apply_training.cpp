// SPDX-License-Identifier: Apache-2.0
#include "tool/apply_training.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/interfaces.h"
#include "config/apply.h"
#include "tool/sample_source.h"

namespace sf::tool {
namespace {

using config::Apply;

// Names and ports of the meeting; a supervisor's ranks need none from their environment.
void place_meeting(config::Settings& settings, const RankEnv& ranks, int supervisor, CommSettings& comm) {
  comm.host = ranks.meet_host;
  comm.port = ranks.meet_port;
  comm.job = ranks.job;
  const bool here = ranks.source == "supervisor" || ranks.source == "single";
  if (here) {
    comm.host = "127.0.0.1";
    comm.port = 20000 + supervisor % 12000;
    comm.job = fmt::format("supervisor {}", supervisor);
  }
  const std::string meet = settings.get_string("comm.meet");
  if (!meet.empty()) comm.host = meet;
  SF_CHECK(!comm.host.empty() && !comm.job.empty(), Exit::kUsage,
           "{} ranks started by {}, but nothing says where rank 0 is: set MASTER_ADDR and MASTER_PORT{}", ranks.world,
           ranks.source, ranks.source == "slurm" ? ", or comm.meet" : "");
  if (here && !comm.interface.empty()) address_of_interface(comm.interface);
}

}  // namespace

std::string apply_device(config::Settings& settings) {
  std::string wanted = settings.get_string("engine.device");
  SF_CHECK(wanted == "cuda" || settings.get_string("comm.group") != "nccl", Exit::kConfig,
           "comm.group = \"nccl\" ({}) joins ranks with engine.device = \"cuda\" only", settings.origin("comm.group"));
  if (wanted == "cpu")
    Apply(settings, "every operator", "ops").word("engine.kernels");
  else
    Apply(settings, "0 operators (on a GPU they are LibTorch's)", "ops").nothing("engine.kernels");
  return Apply(settings, wanted == "cpu" ? "all tensors" : "every segment", "run").word("engine.device");
}

CommSettings apply_comm(config::Settings& settings, const RankEnv& ranks, int supervisor) {
  CommSettings comm{.group = settings.get_string("comm.group")};
  SF_CHECK(comm.group != "single" || ranks.world == 1, Exit::kConfig,
           "comm.group = \"single\" ({}), but {} started {} ranks", settings.origin("comm.group"), ranks.source,
           ranks.world);
  comm.meets = comm.group == "gloo" || (ranks.world > 1 && ranks.source != "supervisor");
  if (!comm.meets && comm.group != "nccl") comm.group = ranks.world == 1 ? "single" : "shm";
  settings.applied("comm.group", comm.group, fmt::format("{} ranks", ranks.world), "comm");
  Apply meeting(settings, fmt::format("{} meetings", comm.meets ? 1 : 0), "comm");
  comm.interface = meeting.word("comm.interface");
  meeting.word("comm.meet");
  comm.join_deadline_s = meeting.number("comm.join_deadline_s");
  if (comm.meets) place_meeting(settings, ranks, supervisor, comm);
  return comm;
}

EngineSettings apply_engine(config::Settings& settings, const plan::ScheduleOptions& schedule) {
  Apply segments(settings, "every segment", "engine");
  auto count = std::count_if(schedule.tables.begin(), schedule.tables.end(),
                             [](const auto& table) { return table.second == plan::Residency::kHost; });
  Apply files(settings, fmt::format("{} files of host tables", count), "engine");
  EngineSettings engine{.poison = segments.flag("engine.poison"),
                        .host_dir_given = settings.given("shard.host_dir"),
                        .call_deadline_s = segments.number("engine.call_deadline_s"),
                        .host_dir = files.word("shard.host_dir")};
  return engine;
}

uint64_t LoopSettings::positions(uint64_t data_rows) const {
  auto all = static_cast<uint64_t>(std::llround(static_cast<double>(data_rows) * epochs));
  return drop_last ? all - all % static_cast<uint64_t>(rows * micro_batches) : all;
}

namespace {

LoopSettings apply_steps(config::Settings& settings) {
  Apply loop(settings, "every step", "train");
  Apply kept(settings, "the run's directory", "train");
  LoopSettings result{.epochs = loop.number("training.epochs"),
                      .total_steps = loop.whole("training.total_steps"),
                      .max_steps = loop.whole("training.max_steps"),
                      .schedule = loop.word("training.schedule"),
                      .best = kept.word("training.best"),
                      .learning_rate = loop.number("training.learning_rate"),
                      .warmup_ratio = loop.number("training.warmup_ratio"),
                      .beta1 = loop.number("training.beta1"),
                      .beta2 = loop.number("training.beta2"),
                      .eps = loop.number("training.eps"),
                      .weight_decay = loop.number("training.weight_decay"),
                      .max_norm = loop.number("training.max_grad_norm"),
                      .checkpoint_every = loop.whole("training.checkpoint_every"),
                      .max_bad_steps = loop.whole("training.max_bad_steps"),
                      .keep_checkpoints = kept.whole("training.keep_checkpoints")};
  result.drop_last = Apply(settings, "every window", "train").word("training.last_window") == "drop";
  result.seed = static_cast<uint64_t>(Apply(settings, "the manifest", "train").whole("training.seed"));
  loop.whole("training.log_every");
  Apply(settings, "spans of every rank", "run").whole("training.trace_every");
  return result;
}

}  // namespace

LoopSettings apply_loop(config::Settings& settings) {
  LoopSettings result = apply_steps(settings);
  Apply window(settings, "every window", "train");
  result.rows = window.whole("training.batch_size");
  result.micro_batches = window.whole("training.micro_batches");
  return result;
}

LoopSettings apply_prompt_loop(config::Settings& settings, int64_t prompts) {
  LoopSettings result = apply_steps(settings);
  Apply without(settings, "0 windows (grpo.prompts and grpo.token_budget make them)", "train");
  for (const char* key : {"training.batch_size", "training.micro_batches"}) without.nothing(key);
  result.micro_batches = prompts;
  return result;
}

Steps steps_of(const LoopSettings& loop, uint64_t data_rows) {
  const uint64_t positions = loop.positions(data_rows), window = static_cast<uint64_t>(loop.rows * loop.micro_batches);
  SF_CHECK(positions >= 1 && positions < (uint64_t{1} << 62), Exit::kConfig,
           "training.epochs = {} of {} rows: there are {} positions to train on, wanted at least 1{}", loop.epochs,
           data_rows, positions, loop.drop_last ? " window (training.last_window = drop)" : "");
  auto all = static_cast<int64_t>((positions + window - 1) / window);
  Steps steps{.run = loop.total_steps > 0 ? std::min(all, loop.total_steps) : all};
  steps.schedule = loop.total_steps > 0 ? loop.total_steps : steps.run;
  auto warmup = static_cast<int64_t>(loop.warmup_ratio * static_cast<double>(steps.schedule));
  SF_CHECK(
      loop.schedule != "constant" || warmup < steps.schedule, Exit::kConfig,
      "training.warmup_ratio = {} makes {} warm-up updates of {}: training.schedule = \"constant\" leaves nothing to "
      "train at the full rate",
      loop.warmup_ratio, warmup, steps.schedule);
  if (loop.max_steps > 0) steps.run = std::min(steps.run, loop.max_steps);
  return steps;
}

std::string last_window_line(const LoopSettings& loop, uint64_t data_rows) {
  LoopSettings whole = loop;
  whole.drop_last = false;
  const auto window = static_cast<uint64_t>(loop.rows * loop.micro_batches), rest = whole.positions(data_rows) % window;
  if (rest == 0) return "";
  if (loop.drop_last) return fmt::format("the last {} positions fill no window of {} and are dropped", rest, window);
  return fmt::format("the last window has {} positions of {}: the others are padded with zero weight", rest, window);
}

StreamSettings apply_stream(app::Invocation& invocation) {
  config::Settings& settings = invocation.settings();
  const std::vector<std::string> from = from_of(invocation);
  if (lies_in_directory(from)) {
    Apply without(settings, "0 streams (features come from a directory)", "run");
    for (const char* key : {"stream.credit_mib", "stream.low_mib", "stream.cap_mib", "stream.heartbeat_s",
                            "stream.rejoin_deadline_s", "stream.report_s"})
      without.nothing(key);
    SF_CHECK(!invocation.has("tee"), Exit::kUsage, "--tee keeps what is streamed, but --from {} is a directory already",
             from.front());
    return {};
  }
  Apply producers(settings, from.size() == 1 ? "1 producer" : fmt::format("{} producers", from.size()), "stream");
  auto files = std::count_if(from.begin(), from.end(), [](const std::string& one) { return one != "-"; });
  auto mib = [&](const char* key) { return static_cast<uint64_t>(producers.whole(key)) << 20; };
  StreamSettings stream{.credit_bytes = mib("stream.credit_mib"),
                        .low_bytes = mib("stream.low_mib"),
                        .cap_bytes = mib("stream.cap_mib"),
                        .heartbeat_s = producers.number("stream.heartbeat_s"),
                        .report_s = producers.number("stream.report_s")};
  SF_CHECK(stream.low_bytes <= stream.credit_bytes || !settings.given("stream.low_mib"), Exit::kConfig,
           "stream.low_mib = {} ({}) is above stream.credit_mib = {}: asking ahead would never stop",
           stream.low_bytes >> 20, settings.origin("stream.low_mib"), stream.credit_bytes >> 20);
  stream.low_bytes = std::min(stream.low_bytes, stream.credit_bytes);
  std::string rejoins = files == 0   ? "0 handle files (a pipe ends with its producer)"
                        : files == 1 ? "1 handle file"
                                     : fmt::format("{} handle files", files);
  stream.rejoin_deadline_s = Apply(settings, rejoins, "stream").number("stream.rejoin_deadline_s");
  return stream;
}

void check_window_fits(const config::Settings& settings, const LoopSettings& loop, const stream::Contract& contract,
                       int world) {
  const auto cap = static_cast<uint64_t>(settings.get_int("stream.cap_mib")) << 20;
  if (cap == 0) return;
  const uint64_t rows = static_cast<uint64_t>((loop.micro_batches + world - 1) / world * loop.rows);
  const uint64_t wanted = rows * stream::largest_sample(contract);
  SF_CHECK(
      wanted <= cap, Exit::kConfig,
      "one window takes up to {} samples of {} tokens at a rank, {:.0f} MiB, and stream.cap_mib is {}: it is short "
      "of {:.0f} MiB; use more ranks or smaller windows, or raise it",
      rows, contract.max_length, static_cast<double>(wanted) / 1048576.0, cap >> 20,
      static_cast<double>(wanted - cap) / 1048576.0);
}

bool apply_adapter_dtype(config::Settings& settings, size_t tensors) {
  Apply masters(settings, fmt::format("{} tensors of the adapter", tensors), "engine");
  if (tensors > 0) return masters.word("training.adapter_dtype") == "bf16";
  Apply(settings, "0 adapters (every parameter trains)", "engine").nothing("training.adapter_dtype");
  return false;
}

}  // namespace sf::tool
