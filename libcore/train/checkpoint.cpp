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
#include "tensor/convert.h"

namespace sf::train {
namespace {

namespace fs = std::filesystem;
constexpr const char* kMoments = "optimizer.safetensors";

using Pieces = std::vector<engine::Engine::Piece>;

bool is_moment(std::string_view name) {
  return name.ends_with(".exp_avg") || name.ends_with(".exp_avg_sq");
}

// Every rank's interval of every piece: [rank][piece].
std::vector<std::vector<plan::Interval>> all_intervals(comm::Group& group, const Pieces& pieces,
                                                       const comm::Call& call) {
  std::vector<plan::Interval> mine, all(pieces.size() * group.world());
  for (const auto& piece : pieces) mine.push_back(piece.interval);
  std::vector<size_t> sizes(group.world(), pieces.size() * sizeof(plan::Interval));
  group.all_gather(std::as_bytes(std::span(mine)), sizes, std::as_writable_bytes(std::span(all)), call);
  std::vector<std::vector<plan::Interval>> by_rank;
  for (int r = 0; r < group.world(); ++r)
    by_rank.emplace_back(all.begin() + r * std::ssize(pieces), all.begin() + (r + 1) * std::ssize(pieces));
  return by_rank;
}

// What rank r sends of one tensor: ranks hold equal intervals or disjoint ones, and of equal ones the first is sent.
plan::Interval share_of(const std::vector<std::vector<plan::Interval>>& intervals, int rank, size_t piece) {
  plan::Interval own = intervals[rank][piece];
  for (int r = 0; r < rank; ++r) {
    if (plan::intersect(intervals[r][piece], own).empty()) continue;
    SF_ASSERT(intervals[r][piece] == own);
    return {};
  }
  return own;
}

// The whole tensors of all pieces on rank 0, one at a time over the wire; empty on the other ranks.
std::vector<NamedTensor> gather(comm::Group& group, const Pieces& pieces, double deadline_s) {
  comm::Call call{"checkpoint", Deadline::after(Seconds(deadline_s))};
  auto intervals = all_intervals(group, pieces, call);
  std::vector<NamedTensor> whole;
  for (size_t i = 0; i < pieces.size(); ++i) {
    plan::Interval share = share_of(intervals, group.rank(), i);
    std::vector<std::span<const std::byte>> to(group.world());
    if (!share.empty()) to[0] = std::as_bytes(pieces[i].values.subspan(share.lo - pieces[i].interval.lo, share.size()));
    auto received = group.all_to_all(to, call);
    if (group.rank() != 0) continue;
    HostTensor tensor(Dtype::kF32, pieces[i].shape);
    for (int r = 0; r < group.world(); ++r) {
      plan::Interval from = share_of(intervals, r, i);
      if (from.empty()) continue;
      SF_ASSERT(received[r].size() == static_cast<size_t>(from.size()) * sizeof(float));
      std::memcpy(tensor.data() + from.lo * sizeof(float), received[r].data(), received[r].size());
    }
    whole.push_back({pieces[i].name, std::move(tensor)});
  }
  return whole;
}

// Rank 0's outcome on every rank: its error is thrown by all.
void agree(comm::Group& group, const std::exception_ptr& error, double deadline_s) {
  std::array<char, 1024> text{};
  int32_t code = 0;
  if (group.rank() == 0 && error) {
    try {
      std::rethrow_exception(error);
    } catch (const Error& known) {
      code = static_cast<int32_t>(known.code());
      std::string_view(known.what()).copy(text.data() + sizeof(code), text.size() - sizeof(code) - 1);
    } catch (const std::exception& other) {
      code = static_cast<int32_t>(Exit::kSoftware);
      std::string_view(other.what()).copy(text.data() + sizeof(code), text.size() - sizeof(code) - 1);
    }
    std::memcpy(text.data(), &code, sizeof(code));
  }
  group.broadcast(std::as_writable_bytes(std::span(text)), 0,
                  {"checkpoint written", Deadline::after(Seconds(deadline_s))});
  std::memcpy(&code, text.data(), sizeof(code));
  if (code != 0) throw Error(static_cast<Exit>(code), text.data() + sizeof(code));
}

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

HostTensor as_bf16(const HostTensor& wide) {
  const TensorView from = wide.view();
  HostTensor narrow(Dtype::kBF16, from.shape);
  convert(from.span(), from.dtype, {narrow.data(), narrow.view().bytes()}, Dtype::kBF16);
  return narrow;
}

void load_moment(engine::Engine& engine, const ckpt::SafetensorsFile& file, const engine::Engine::Piece& piece) {
  TensorView stored = file.view(piece.name);
  SF_CHECK(stored.dtype == Dtype::kF32 && stored.shape == piece.shape, Exit::kData, "{}: {} is {} {}, wanted F32 {}",
           file.path().string(), piece.name, name_of(stored.dtype), to_string(stored.shape), to_string(piece.shape));
  if (fault("train.forget_moments")) return;
  engine.load_state(piece.name, [&](int64_t lo, int64_t hi, std::span<float> to) {
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

void Checkpoints::write(const std::vector<NamedTensor>& gathered, const Progress& progress,
                        std::optional<double> score) {
  try {
    std::string name = publish(gathered, progress, score).filename().string();
    if (score) name_best(name, *score);
    rotate(progress.step);
  } catch (...) {
    error_ = std::current_exception();
  }
}

// Every rank calls it: the end of what is being written, and its error.
void Checkpoints::settle(comm::Group& group) {
  if (writing_step_ < 0) return;
  if (writer_.joinable()) writer_.join();
  int64_t step = std::exchange(writing_step_, -1);
  agree(group, std::exchange(error_, nullptr), options_.deadline_s);
  last_step_ = step;
  last_ = options_.run_dir / ("step-" + std::to_string(step));
}

fs::path Checkpoints::save(engine::Engine& engine, const Progress& progress, Saved until) {
  comm::Group& group = engine.group();
  settle(group);
  if (progress.step == last_step_) {
    // A kill between a publication and the move of `latest` leaves it at an older step.
    if (group.rank() == 0) ckpt::point_latest(options_.run_dir, last_.filename());
    return last_;
  }
  std::vector<NamedTensor> gathered = gather(group, engine.state(), options_.deadline_s);
  for (const std::string& name : options_.also_frozen) {
    at::Tensor frozen = engine.gathered(name);
    if (group.rank() == 0) gathered.push_back({name, tensor::to_host(frozen, Dtype::kF32)});
  }
  writing_step_ = progress.step;
  std::optional<double> score;
  if (windows_ > 0) score = noted_ / static_cast<double>(windows_);
  noted_ = 0, windows_ = 0;
  if (group.rank() == 0 && until == Saved::kPublished) write(gathered, progress, score);
  if (group.rank() == 0 && until == Saved::kCopied) {
    writer_ = std::thread([this, progress, score, whole = std::move(gathered)] {
      pthread_setname_np(pthread_self(), "checkpoint");
      // Writing takes what the steps leave of the processors.
      setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19);
      write(whole, progress, score);
    });
  }
  if (until == Saved::kPublished) settle(group);
  return options_.run_dir / ("step-" + std::to_string(progress.step));
}

fs::path Checkpoints::publish(const std::vector<NamedTensor>& gathered, const Progress& progress,
                              std::optional<double> score) const {
  std::string name = "step-" + std::to_string(progress.step);
  discard(options_.run_dir / name);
  ckpt::Publisher publisher(options_.run_dir / name);
  std::vector<std::pair<std::string, TensorView>> weights, moments;
  std::vector<HostTensor> narrow;
  narrow.reserve(gathered.size());
  for (const NamedTensor& each : gathered) {
    if (is_moment(each.name))
      moments.emplace_back(each.name, each.tensor.view());
    else
      weights.emplace_back(each.name,
                           options_.bf16 ? narrow.emplace_back(as_bf16(each.tensor)).view() : each.tensor.view());
  }
  for (const NamedTensor& buffer : options_.buffers) weights.emplace_back(buffer.name, buffer.tensor.view());
  ckpt::write_safetensors(publisher.dir() / kMoments, moments);
  for (const fs::path& file : options_.side_files) write_atomic(publisher.dir() / file.filename(), read_file(file));
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
  if (score) manifest.extra.set("score", Json::object().set(options_.best, *score));
  fs::path published = publisher.commit(weights, options_.model_config, std::move(manifest));
  ckpt::point_latest(options_.run_dir, name);
  return published;
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
  Pieces pieces = engine.state();
  ckpt::SafetensorsFile moments = ckpt::SafetensorsFile::open(from.dir() / kMoments);
  for (const auto& piece : pieces) {
    if (is_moment(piece.name)) {
      load_moment(engine, moments, piece);
      continue;
    }
    Shape stored = from.info(piece.name).shape;
    SF_CHECK(stored == piece.shape, Exit::kData, "{}: {} has shape {}, this run's model {}", from.dir().string(),
             piece.name, to_string(stored), to_string(piece.shape));
    engine.load(piece.name, read(piece.name));
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
