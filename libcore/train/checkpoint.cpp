// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "comm/agree.h"
#include "tensor/convert.h"

namespace sf::train {
namespace {

namespace fs = std::filesystem;
// Writing takes a fifteenth of a processor that steps want too; with less the next checkpoint waits for this one.
constexpr int kNice = 12;
constexpr double kFlush = 30;      // seconds that a busy disk takes to say that bytes are there
constexpr double kSlowest = 50e6;  // bytes a second that a disk takes at least

int64_t step_number(const fs::path& path) {
  std::string name = path.filename().string();
  int64_t step = -1;
  if (!name.starts_with("step-")) return -1;
  auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() ? step : -1;
}

void discard(const fs::path& dir) {
  std::error_code error;
  if (!fs::exists(dir, error)) return;
  fs::remove_all(dir, error);
  if (error) fail(exit_of_errno(error.value(), Exit::kIo), "cannot remove {}: {}", dir.string(), error.message());
}

void add_progress(Json& extra, const Progress& progress) {
  extra.set("updates", progress.updates).set("voids", progress.voids).set("tokens", progress.tokens);
  extra.set("skipped", progress.skipped).set("skipped_in_a_row", progress.skipped_in_a_row);
}

void load_moment(engine::Engine& engine, const ckpt::SafetensorsFile& file, const Share& share) {
  TensorView stored = file.view(share.name);
  SF_CHECK(stored.dtype == Dtype::kF32 && stored.shape == share.shape, Exit::kData, "{}: {} is {} {}, wanted F32 {}",
           file.path().string(), share.name, name_of(stored.dtype), to_string(stored.shape), to_string(share.shape));
  if (fault("train.forget_moments")) return;
  engine.load_state(share.name, [&](int64_t lo, int64_t hi, std::span<float> to) {
    std::memcpy(to.data(), stored.data + lo * sizeof(float), static_cast<size_t>(hi - lo) * sizeof(float));
  });
}

}  // namespace

Checkpoints::Checkpoints(CheckpointOptions options) : options_(std::move(options)) {}

Checkpoints::~Checkpoints() {
  if (writer_.joinable()) writer_.join();
}

void Checkpoints::note(std::span<const std::pair<std::string, double>> metrics) {
  for (const auto& [name, value] : metrics) {
    if (name != options_.best) continue;
    noted_ += value;
    ++windows_;
  }
}

// The end of what is being written, and its error, which is the same on every rank.
void Checkpoints::settle() {
  if (writing_step_ < 0) return;
  if (writer_.joinable()) writer_.join();
  int64_t step = std::exchange(writing_step_, -1);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  last_step_ = step;
  last_ = options_.run_dir / ("step-" + std::to_string(step));
}

Shares Checkpoints::shares(engine::Engine& engine) {
  comm::Group& group = engine.group();
  if (!writers_) {
    writers_ = group.aside({"writers of checkpoints", Deadline::after(Seconds(options_.deadline_s))});
    fixed_ = options_.buffers;
    for (const std::string& name : options_.also_frozen)
      fixed_.push_back({name, tensor::to_host(engine.gathered(name), Dtype::kF32)});
  }
  Shares all = shares_of(engine, options_.bf16 ? Dtype::kBF16 : Dtype::kF32);
  for (const NamedTensor& whole : fixed_) {
    const TensorView view = whole.tensor.view();
    const int64_t mine = group.rank() == 0 ? numel(view.shape) : 0;
    all.push_back({whole.name, view.shape, view.dtype, 0, {view.data, view.dtype, {mine}}});
  }
  return all;
}

fs::path Checkpoints::save(engine::Engine& engine, const Progress& progress, Saved until) {
  settle();
  if (progress.step == last_step_) {
    // A kill between a publication and the move of `latest` leaves it at an older step.
    if (engine.group().rank() == 0) ckpt::point_latest(options_.run_dir, last_.filename());
    return last_;
  }
  Shares shares = this->shares(engine);
  Record record{progress, {}};
  if (windows_ > 0) record.score = noted_ / static_cast<double>(windows_);
  noted_ = 0, windows_ = 0;
  writing_step_ = progress.step;
  if (until == Saved::kPublished) {
    write(shares, record);
    settle();
  } else {
    copy_values(shares, copy_);
    writer_ = std::thread([this, record, shares = std::move(shares)] {
      pthread_setname_np(pthread_self(), "checkpoint");
      setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
      write(shares, record);
    });
  }
  return options_.run_dir / record.name();
}

// What went wrong on one rank is every rank's error.
void Checkpoints::write(const Shares& shares, const Record& record) {
  try {
    comm::Group& group = *writers_;
    const bool first = group.rank() == 0;
    const double patience = options_.deadline_s + kFlush + static_cast<double>(whole_bytes(shares)) / kSlowest;
    const comm::Call call{"writing a checkpoint", Deadline::after(Seconds(patience))};
    std::optional<ckpt::Publisher> publisher;
    std::array<char, 256> dir{};
    comm::agree(group, call, [&] {
      if (!first) return;
      discard(options_.run_dir / record.name());
      publisher.emplace(options_.run_dir / record.name());
      reserve(*publisher, shares);
      publisher->dir().filename().string().copy(dir.data(), dir.size() - 1);
    });
    group.broadcast(std::as_writable_bytes(std::span(dir)), 0, call);
    std::vector<ckpt::Part> mine;
    comm::agree(group, call, [&] { mine = fill(options_.run_dir / dir.data(), shares); });
    ckpt::Parts parts = gather_parts(group, shares, mine, call);
    comm::agree(group, call, [&] {
      if (first) publish(*publisher, parts, record);
    });
  } catch (...) {
    error_ = std::current_exception();
  }
}

void Checkpoints::reserve(ckpt::Publisher& publisher, const Shares& shares) const {
  publisher.reserve(declared(shares, false), options_.model_config);
  ckpt::reserve_safetensors(publisher.dir() / kMoments, declared(shares, true));
  for (const fs::path& file : options_.side_files) write_atomic(publisher.dir() / file.filename(), read_file(file));
}

void Checkpoints::publish(ckpt::Publisher& publisher, const ckpt::Parts& parts, const Record& record) const {
  const Progress& progress = record.progress;
  ckpt::Manifest manifest;
  manifest.kind = "train";
  manifest.contract = options_.contract;
  manifest.config = options_.config;
  manifest.numerics = options_.numerics;
  manifest.step = progress.step;
  manifest.cursor = static_cast<int64_t>(progress.cursor);
  manifest.seed = options_.seed;
  manifest.aliases = options_.aliases;
  manifest.buffers = options_.buffer_records;
  manifest.extra = options_.extra;  // first: a draft that was a checkpoint itself carries another run's progress
  add_progress(manifest.extra, progress);
  if (record.score) manifest.extra.set("score", Json::object().set(options_.best, *record.score));
  publisher.commit_reserved(parts, std::move(manifest));
  ckpt::point_latest(options_.run_dir, record.name());
  if (record.score) name_best(record.name(), *record.score);
  rotate(progress.step);
}

// The later of two equal ones.
void Checkpoints::name_best(const std::string& name, double score) const {
  double best = options_.best == "loss" ? HUGE_VAL : -HUGE_VAL;
  if (std::optional<fs::path> named = ckpt::best_checkpoint(options_.run_dir)) {
    const ckpt::Checkpoint open = ckpt::Checkpoint::open(*named);
    if (const Json* known = open.manifest().extra.find("score")) best = known->get_double(options_.best, best);
  }
  if (options_.best == "loss" ? score <= best : score >= best) ckpt::point_best(options_.run_dir, name);
}

void Checkpoints::rotate(int64_t newest) const {
  if (options_.keep <= 0) return;
  std::vector<int64_t> steps;
  std::error_code ignored;
  std::optional<fs::path> best = ckpt::best_checkpoint(options_.run_dir);
  for (const auto& entry : fs::directory_iterator(options_.run_dir, ignored)) {
    bool stays = best && best->filename() == entry.path().filename();
    if (int64_t step = step_number(entry.path()); step >= 0 && step < newest && !stays) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  for (int64_t i = 0; i + options_.keep - 1 < std::ssize(steps); ++i)
    discard(options_.run_dir / ("step-" + std::to_string(steps[i])));
}

Progress Checkpoints::load(engine::Engine& engine, const ckpt::Checkpoint& from) {
  const ckpt::Manifest& manifest = from.manifest();
  SF_CHECK(manifest.kind == "train", Exit::kData, "{} is not a checkpoint of a training run: it has no optimizer state",
           from.dir().string());
  auto read = [&](const std::string& name) {
    return [&from, name](int64_t lo, int64_t hi, std::span<float> to) {
      from.read(name, lo, hi, Dtype::kF32, std::as_writable_bytes(to));
    };
  };
  ckpt::SafetensorsFile moments = ckpt::SafetensorsFile::open(from.dir() / kMoments);
  for (const Share& share : shares_of(engine, Dtype::kF32)) {
    if (share.is_moment()) {
      load_moment(engine, moments, share);
      continue;
    }
    Shape stored = from.info(share.name).shape;
    SF_CHECK(stored == share.shape, Exit::kData, "{}: {} has shape {}, this run's model {}", from.dir().string(),
             share.name, to_string(stored), to_string(share.shape));
    engine.load(share.name, read(share.name));
  }
  for (const std::string& name : options_.also_frozen) engine.load(name, read(name));
  Progress progress{manifest.step,
                    manifest.extra.get_int("updates", 0),
                    static_cast<uint64_t>(manifest.cursor),
                    manifest.extra.get_int("voids", 0),
                    manifest.extra.get_int("tokens", 0),
                    manifest.extra.get_int("skipped", 0),
                    manifest.extra.get_int("skipped_in_a_row", 0)};
  engine.set_steps_done(progress.updates);
  last_ = from.dir();
  fs::path whole = fs::weakly_canonical(from.dir());
  std::error_code ignored;
  if (fs::equivalent(whole.parent_path(), options_.run_dir, ignored)) {  // else this run has published nothing yet
    last_ = options_.run_dir / whole.filename();
    last_step_ = progress.step;
  }
  return progress;
}

}  // namespace sf::train
