// SPDX-License-Identifier: Apache-2.0
#include "run/training.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/hash.h"
#include "base/present.h"
#include "comm/agree.h"
#include "comm/trace.h"
#include "run/device.h"
#include "stream/features.h"
#include "tensor/threads.h"
#include "tool/apply_schedule.h"
#include "tool/plan_request.h"
#include "tool/run_dir.h"
#include "tool/sample_source.h"

namespace sf::run {
namespace {

namespace fs = std::filesystem;
constexpr Seconds kSeen{5}, kOthersLook{120};

// "memory of rank 1, MiB: at rest 4.10 (plan 4.10), peak 18.00 (plan 18.20), resident 21.30 (plan 18.20)"
std::string memory_line(const train::MemoryUse& use, size_t rank) {
  auto pair = [](std::string_view name, uint64_t measured, uint64_t predicted) {
    std::string text = fmt::format("{} {:.2f}", name, static_cast<double>(measured) / 1048576.0);
    return predicted > 0 ? text + fmt::format(" (plan {:.2f})", static_cast<double>(predicted) / 1048576.0) : text;
  };
  return fmt::format("memory of rank {}, MiB: {}, {}, {}", rank,
                     pair("at rest", use.at_rest_measured, use.at_rest_predicted),
                     pair("peak", use.peak_measured, use.peak_predicted),
                     pair("resident", use.resident_measured, use.resident_predicted)) +
         (use.device_peak_measured > 0 ? ", " + pair("peak of the device", use.device_peak_measured, 0) : "");
}

Json memory_json(const std::vector<train::MemoryUse>& ranks) {
  Json list = Json::array();
  for (const train::MemoryUse& use : ranks) {
    Json one = Json::object()
                   .set("at_rest_predicted", use.at_rest_predicted)
                   .set("at_rest_measured", use.at_rest_measured)
                   .set("peak_predicted", use.peak_predicted)
                   .set("peak_measured", use.peak_measured)
                   .set("resident_predicted", use.resident_predicted)
                   .set("resident_measured", use.resident_measured);
    if (use.device_peak_measured > 0) one.set("device_peak_measured", use.device_peak_measured);
    list.push(std::move(one));
  }
  return list;
}

// Ranks write checkpoints together: each must see what rank 0 has just written into the run's directory. A network file
// system may remember for a while what was there.
void check_shared(comm::Group& group, const fs::path& dir) {
  const comm::Call call{"run directory", Deadline::after(kOthersLook)};
  auto lock = [&] { return is_present(dir / ".lock") ? xxh3_64(read_file(dir / ".lock")) : 0; };
  uint64_t wanted = lock();
  group.broadcast(std::as_writable_bytes(std::span(&wanted, 1)), 0, call);
  comm::agree(group, call, [&] {
    for (Deadline patience = Deadline::after(kSeen); lock() != wanted && !patience.passed();) usleep(50'000);
    SF_CHECK(lock() == wanted, Exit::kCantCreate,
             "{} is not the directory that rank 0 sees there, and all ranks write checkpoints to it; choose an -o on a "
             "file system that they share",
             fs::absolute(dir).string());
  });
}

}  // namespace

RunDir::RunDir(app::Invocation& invocation, comm::Group& group) : path_(invocation.get("output")) {
  invocation.stop();  // from here on a request to stop is kept until somebody can act on it
  on_first_rank(group, "run directory " + path_.string(), [&] {
    tool::refuse_what_is_no_run(path_);
    made_ = NewDirs(path_);
    lock_ = DirLock::acquire(path_, invocation.command_line());
    ckpt::remove_unfinished(path_);
  });
  check_shared(group, path_);
  resume_ = tool::resume_point(invocation, path_);
}

engine::EngineOptions apply_engine(app::Invocation& invocation, const arch::ModelSpec& spec,
                                   const tool::PlaceOf& place_of) {
  config::Settings& settings = invocation.settings();
  engine::EngineOptions options;
  options.schedule = tool::apply_schedule(settings, spec, invocation.ranks().world);
  const tool::EngineSettings engine = tool::apply_engine(settings, options.schedule);
  options.poison = engine.poison;
  options.call_deadline_s = engine.call_deadline_s;
  options.host_dir = engine.host_dir;
  options.spill_dir = invocation.get("output", ".");
  if (place_of)
    for (const auto& [name, place] : tool::place_host_tables(options.schedule, place_of))
      options.host_sources[name] = {place.file, place.offset, place.type, place.digest, engine.host_dir_given};
  return options;
}

void choose_modes(app::Invocation& invocation, comm::Group& group, engine::EngineOptions& options,
                  const tool::RequestOf& request_of) {
  config::Settings& settings = invocation.settings();
  tool::PlanRequest request;
  if (settings.get_string("engine.mode") == "auto") {
    config::Settings asked = settings;  // what the request applies is applied by this run elsewhere
    request = request_of(asked, group.world());
    request.load.ranks_here = invocation.ranks().local_world;
    tool::set_limits(request, 0, tool::kUsualBandwidth);
  }
  tool::apply_modes(settings, request, [&](uint64_t limit) {
    std::vector<uint64_t> all(static_cast<size_t>(group.world()));
    std::vector<size_t> sizes(all.size(), sizeof(limit));
    group.all_gather(std::as_bytes(std::span(&limit, 1)), sizes, std::as_writable_bytes(std::span(all)),
                     {"memory limit", Deadline::after(Seconds(options.call_deadline_s))});
    return *std::min_element(all.begin(), all.end());
  });
  options.schedule.modes = request.options.modes;
}

train::LoopOptions loop_options(app::Invocation& invocation, const tool::LoopSettings& loop, uint64_t rows,
                                bool reference_quirks) {
  const tool::Steps steps = tool::steps_of(loop, rows);
  if (std::string line = tool::last_window_line(loop, rows); !line.empty() && invocation.ranks().rank == 0)
    invocation.log(line);
  train::LoopOptions options;
  options.windows = {.rows = loop.rows, .micro_batches = loop.micro_batches, .positions = loop.positions(rows)};
  options.steps = steps.run;
  options.schedule = {.decay = train::decay_from_name(loop.schedule),
                      .base = loop.learning_rate,
                      .warmup_ratio = loop.warmup_ratio,
                      .total = steps.schedule,
                      .reference_quirks = reference_quirks};
  options.adamw = {.beta1 = loop.beta1, .beta2 = loop.beta2, .eps = loop.eps, .weight_decay = loop.weight_decay};
  options.max_norm = loop.max_norm;
  options.checkpoint_every = loop.checkpoint_every;
  options.skip_limit = loop.max_bad_steps;
  options.call_deadline_s = invocation.settings().get_float("engine.call_deadline_s");
  return options;
}

ckpt::Share share_of(const app::Invocation& invocation) {
  return {static_cast<size_t>(invocation.ranks().rank), static_cast<size_t>(invocation.ranks().world)};
}

train::Progress resume(app::Invocation& invocation, const RunDir& run, train::Checkpoints& checkpoints,
                       engine::Engine& engine, const stream::Contract& samples) {
  std::optional<fs::path> from = run.resume_from();
  if (!from) return {};
  ckpt::Checkpoint checkpoint = ckpt::Checkpoint::open(*from);
  tool::check_same_run(invocation, checkpoint.manifest(), samples);
  train::Progress progress = checkpoints.load(engine, checkpoint);
  invocation.log(fmt::format("resumed from {}: step {}, position {}", from->string(), progress.step, progress.cursor));
  return progress;
}

Json numerics(app::Invocation& invocation) {
  Json info = app::build_info(), facts = Json::object();
  facts.set("world", int64_t{invocation.ranks().world}).set("threads", int64_t{tensor::threads()});
  if (std::optional<std::string> name = gpu_name()) facts.set("device", *name);
  return facts.set("build", std::move(info));
}

train::CheckpointOptions checkpoints_of_run(app::Invocation& invocation, const stream::Contract& contract,
                                            const tool::LoopSettings& loop) {
  train::CheckpointOptions options{.run_dir = invocation.get("output"),
                                   .contract = contract.to_json(),
                                   .config = invocation.settings().resolved(),
                                   .numerics = numerics(invocation)};
  options.seed = loop.seed;
  options.deadline_s = invocation.settings().get_float("engine.call_deadline_s");
  options.keep = loop.keep_checkpoints;
  if (loop.best != "none") options.best = loop.best;
  return options;
}

tool::Samples samples_of(app::Invocation& invocation, const stream::Contract& contract) {
  bool lies_here = tool::lies_in_directory(invocation.all("from"));
  auto credit = static_cast<uint64_t>(invocation.settings().get_int("stream.credit_mib")) << 20;
  return {contract.max_length, stream::feature_element(contract.feature_dtype), lies_here ? 0 : credit};
}

uint64_t sample_bytes(const tool::Samples& samples, const stream::Contract& contract, int world,
                      const train::LoopOptions& options) {
  uint64_t width = contract.layers.size() * static_cast<uint64_t>(contract.hidden);
  uint64_t row = static_cast<uint64_t>(samples.width) * width * size_of(samples.type);
  if (samples.credit_bytes == 0) return static_cast<uint64_t>(options.windows.rows) * row;
  return std::min(samples.credit_bytes, 2 * options.windows.window_positions() / static_cast<uint64_t>(world) * row);
}

// Writes metrics.jsonl, and every training.log_every steps a line for people.
class RunReport::Sink : public MetricSink {
 public:
  Sink(app::Invocation& invocation, report::MetricsWriter writer, int64_t resumed_step, int64_t steps)
      : invocation_(invocation),
        writer_(std::move(writer)),
        steps_(steps),
        every_(invocation.settings().get_int("training.log_every")),
        last_step_(resumed_step) {}

  // A run that fails before its first step leaves nothing.
  ~Sink() override {
    std::error_code ignored;
    if (last_step_ == 0) fs::remove(writer_.file(), ignored);
  }

  void scalar(int64_t step, std::string_view name, double value) override {
    writer_.scalar(step, name, value);
    if (name == "loss") loss_ = value;
    if (name == "acc") accuracy_ = value;
  }
  void flush(int64_t step) override {
    writer_.flush(step);
    if (step == 0) return;  // what was there before the first one
    std::string detail = fmt::format("loss {:.4f}, acc {:.3f}", loss_, accuracy_);
    invocation_.progress("steps", step, steps_, detail);
    last_step_ = step;
    if (step % every_ == 0 || step == steps_) invocation_.log(fmt::format("step {}/{}: {}", step, steps_, detail));
  }
  report::MetricsWriter& writer() { return writer_; }

 private:
  app::Invocation& invocation_;
  report::MetricsWriter writer_;
  int64_t steps_, every_, last_step_;
  double loss_ = NAN, accuracy_ = NAN;
};

RunReport::RunReport(app::Invocation& invocation, engine::Engine& engine, const RunDir& run, int64_t resumed_step,
                     int64_t steps)
    : invocation_(invocation), first_rank_(engine.group().rank() == 0) {
  comm::Group& group = engine.group();
  record_spans(group, run, resumed_step);
  if (!first_rank_) return;
  fs::path file = run.path() / "metrics.jsonl";
  if (resumed_step == 0) fs::remove(file);
  sink_ = std::make_unique<Sink>(invocation, report::MetricsWriter::open(file, resumed_step), resumed_step, steps);
  if (const std::string& torn = sink_->writer().torn(); !torn.empty())
    invocation.warn(fmt::format("{}: its last line was torn and is dropped: {:.60}", file.string(), torn));
  Json facts = Json::object().set("command", invocation.command_line()).set("ranks", int64_t{group.world()});
  facts.set("threads", int64_t{tensor::threads()}).set("group", std::string(group.kind())).set("steps", steps);
  facts.set("plan", engine.schedule().digest());
  sink_->writer().event("run", resumed_step, facts);
}

// The second step is the first steady one; then every training.trace_every-th.
void RunReport::record_spans(comm::Group& group, const RunDir& run, int64_t resumed_step) {
  comm::Trace* trace = comm::trace_of(group);
  int64_t every = invocation_.settings().get_int("training.trace_every");
  auto file = [&](int rank) { return run.path() / fmt::format("spans-{}.jsonl", rank); };
  if (group.rank() == 0)
    for (int gone = group.world(); fs::remove(file(gone)); ++gone) {
    }
  if (!trace || every == 0) return;
  spans_ = std::make_unique<report::SpanWriter>(file(group.rank()), resumed_step, group.rank());
  trace->wanted = [this, every](int64_t step) { return (step == 2 || step % every == 0) && spans_->has_room(); };
  trace->sink = [this](int64_t step, const std::vector<comm::Span>& spans, size_t dropped) {
    std::vector<report::Span> records;
    for (const comm::Span& span : spans)
      records.push_back({std::string(name_of(span.kind)), span.name, span.begin, span.end, span.waited, span.bytes});
    spans_->write(step, records, dropped);
  };
}

RunReport::~RunReport() = default;

MetricSink* RunReport::sink() {
  return sink_.get();
}

void RunReport::event(std::string_view name, int64_t step, const Json& fields) {
  if (sink_) sink_->writer().event(name, step, fields);
}

int RunReport::finish(const train::LoopEnd& end) {
  int status = static_cast<int>(end.exit);
  if (sink_) {
    for (size_t rank = 0; rank < end.memory.size(); ++rank)
      if (end.memory[rank].peak_measured > 0) invocation_.log(memory_line(end.memory[rank], rank));
    Json facts = Json::object().set("status", int64_t{status}).set("reason", end.reason);
    sink_->writer().event("end", end.progress.step, facts.set("memory", memory_json(end.memory)));
    if (end.progress.voids) invocation_.log(fmt::format("{} positions were void", end.progress.voids));
    if (end.progress.skipped)
      invocation_.warn(fmt::format("{} steps were skipped: non-finite gradients", end.progress.skipped));
    if (end.exit == Exit::kAgain) invocation_.log(fmt::format("ended at step {}: {}", end.progress.step, end.reason));
    if (!end.checkpoint.empty() && status) invocation_.log("kept " + end.checkpoint.string());
    if (!end.checkpoint.empty() && !status) {
      Json json = Json::object().set("path", end.checkpoint.string()).set("step", end.progress.step);
      json.set("voids", end.progress.voids).set("skipped", end.progress.skipped);
      invocation_.result(invocation_.json_output() ? json.dump() : end.checkpoint.string());
    }
    // The rank that speaks tells it as an error, which -q does not silence.
    if (status && end.exit != Exit::kAgain) fail(end.exit, "ended at step {}: {}", end.progress.step, end.reason);
  }
  return status;
}

}  // namespace sf::run
