// SPDX-License-Identifier: Apache-2.0
#include "train/loop.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "plan/interval.h"
#include "tensor/convert.h"
#include "train/perf.h"

namespace sf::train {

// This rank's part of a window: the micro-batches k with k mod W = rank, in order.
struct Loop::Fetched {
  uint64_t begin = 0, end = 0;                     // positions, all ranks
  int64_t micro_batches = 0;                       // all ranks
  std::vector<data::Batch> batches;                // by round
  std::vector<std::vector<int64_t>> batch_counts;  // by round; empty for a void micro-batch
  std::optional<Error> failure;
};

// What all ranks know before the first round.
struct Loop::Agreed {
  Exit failure = Exit::kOk;
  int failed_rank = -1;
  bool stop = false, publish = false;
  uint64_t begin = 0, end = 0;
  int64_t micro_batches = 0, voids = 0, tokens = 0;
  std::vector<int64_t> counts;
};

int64_t Windows::steps() const {
  uint64_t window = window_positions();
  return static_cast<int64_t>((positions + window - 1) / window);
}

void check(const Windows& windows) {
  SF_CHECK(windows.rows >= 1 && windows.rows <= 4096, Exit::kConfig, "a micro-batch has {} rows, wanted 1 to 4096",
           windows.rows);
  SF_CHECK(windows.micro_batches >= 1 && windows.micro_batches <= (1 << 20), Exit::kConfig,
           "a window has {} micro-batches, wanted 1 to {}", windows.micro_batches, 1 << 20);
  SF_CHECK(windows.positions >= 1 && windows.positions < (uint64_t{1} << 62), Exit::kConfig,
           "there are {} positions to train on, wanted at least 1", windows.positions);
}

Loop::Loop(engine::Engine& engine, data::Feed& feed, const Objective& objective, Checkpoints& checkpoints,
           LoopOptions options, MetricSink* sink, std::function<Stop()> stop)
    : engine_(engine),
      feed_(feed),
      objective_(objective),
      checkpoints_(checkpoints),
      options_(std::move(options)),
      sink_(sink),
      stop_(std::move(stop)),
      trace_(comm::trace_of(engine.group())) {
  check(options_.windows);
  check(options_.schedule);
  SF_CHECK(options_.steps >= 1 && options_.steps <= options_.windows.steps(), Exit::kConfig,
           "the run wants {} steps, its {} positions give {}", options_.steps, options_.windows.positions,
           options_.windows.steps());
}

LoopEnd Loop::run(const Progress& progress) {
  progress_ = progress;
  try {
    return run_steps();
  } catch (const std::exception& error) {
    // The others must not wait for a rank that is gone.
    engine_.group().abandon(error.what());
    throw;
  }
}

void Loop::phase(comm::Span::Kind kind) {
  if (trace_) trace_->phase(kind);
}

LoopEnd Loop::run_steps() {
  step_began_ = monotonic_s();
  bytes_before_ = engine_.group().traffic().bytes_sent;
  // A kill in an evaluation left the checkpoint without its record.
  if (evaluation_due() && checkpoints_.holds(progress_.step)) evaluate();
  while (progress_.step < options_.steps) {
    if (trace_) trace_->begin_step(progress_.step + 1);
    phase(comm::Span::Kind::kData);
    Fetched window = fetch();
    phase(comm::Span::Kind::kCompute);
    Agreed agreed = agree(window);
    if (agreed.failure != Exit::kOk) {
      std::string who =
          window.failure ? window.failure->what() : "rank " + std::to_string(agreed.failed_rank) + " lost its data";
      return leave(agreed.failure, who);
    }
    if (agreed.stop) return leave(Exit::kAgain, "stopped by request");
    note_work(window.batches, window.batch_counts);
    compute_began_ = monotonic_s();
    update(agreed, train(window, agreed));
    feed_.trained(progress_.cursor);
    phase(comm::Span::Kind::kPublish);
    bool due = options_.checkpoint_every > 0 && progress_.step % options_.checkpoint_every == 0;
    if (evaluation_due()) {
      evaluate();
    } else if (due || agreed.publish) {
      checkpoints_.save(engine_, progress_, Saved::kCopied);
      copied_ = true;
    }
    if (trace_) trace_->end_step();
  }
  return leave(Exit::kOk, "");
}

bool Loop::evaluation_due() const {
  if (options_.evaluate_every == 0 || progress_.step == 0) return false;
  return progress_.step % options_.evaluate_every == 0 || progress_.step >= options_.steps;
}

void Loop::evaluate() {
  checkpoints_.save(engine_, progress_);
  options_.evaluate(checkpoints_.last(), progress_.step, metrics_);
  note_memory();
  step_began_ = monotonic_s();
  bytes_before_ = engine_.group().traffic().bytes_sent;
}

LoopEnd Loop::leave(Exit exit, std::string reason) {
  std::vector<MemoryUse> memory = memory_of_all();
  std::filesystem::path published;
  if (progress_.step > 0) published = checkpoints_.save(engine_, progress_);
  feed_.finish();
  return {exit, std::move(reason), std::move(published), progress_, std::move(memory)};
}

Deadline Loop::deadline(double more_s) const {
  return Deadline::after(Seconds(options_.call_deadline_s + more_s));
}

Loop::Fetched Loop::fetch() {
  double started = monotonic_s();
  const Windows& windows = options_.windows;
  int world = engine_.group().world(), rank = engine_.group().rank();
  auto positions_from = [&](uint64_t begin) {
    std::vector<std::vector<uint64_t>> mine;
    for (int64_t k = rank; k < windows.micro_batches; k += world) {
      uint64_t lo = begin + static_cast<uint64_t>(k * windows.rows),
               hi = std::min(lo + windows.rows, windows.positions);
      if (lo >= hi) break;
      mine.emplace_back(hi - lo);
      std::iota(mine.back().begin(), mine.back().end(), lo);
    }
    return mine;
  };
  Fetched window{
      progress_.cursor, std::min(progress_.cursor + windows.window_positions(), windows.positions), 0, {}, {}, {}};
  window.micro_batches = static_cast<int64_t>((window.end - window.begin + windows.rows - 1) / windows.rows);
  auto mine = positions_from(window.begin);
  try {
    // The next window is asked for at once, so that it travels while this one is computed.
    for (uint64_t begin : {window.begin, window.end})
      for (const auto& positions : positions_from(begin)) feed_.want(positions);
    for (const auto& positions : mine) {
      window.batches.push_back(feed_.get(positions));
      const data::Batch& batch = window.batches.back();
      window.batch_counts.push_back(batch.empty() ? std::vector<int64_t>() : objective_.counts(batch.tensors));
    }
  } catch (const Error& error) {
    window.failure = error;
  }
  data_s_ += monotonic_s() - started;
  return window;
}

// One sum of integers over the ranks: who failed, who wants to stop, and the window's denominators.
Loop::Agreed Loop::agree(const Fetched& window) {
  comm::Group& group = engine_.group();
  size_t world = static_cast<size_t>(group.world());
  constexpr size_t kCounts = 4;  // behind the failures: stop, publish, voids, tokens; then the objective's counts
  std::vector<int64_t> sum(world + kCounts + objective_.count_size(), 0);
  if (window.failure) sum[group.rank()] = static_cast<int64_t>(window.failure->code());
  Stop asked = stop_ ? stop_() : Stop::kNo;
  sum[world] = asked == Stop::kFinish;
  sum[world + 1] = asked == Stop::kPublish;
  for (size_t i = 0; i < window.batch_counts.size(); ++i) {
    sum[world + 2] += window.batches[i].voids;
    sum[world + 3] += window.batches[i].tokens;
    for (size_t c = 0; c < window.batch_counts[i].size(); ++c) sum[world + kCounts + c] += window.batch_counts[i][c];
  }
  std::vector<int64_t> alone = sum;
  group.all_reduce_sum(sum, {"window counts", deadline(feed_.deadline_s())});
  Agreed agreed;
  for (size_t r = 0; r < world; ++r) {
    if (sum[r] == 0 || agreed.failed_rank >= 0) continue;
    agreed.failed_rank = static_cast<int>(r);
    agreed.failure = static_cast<Exit>(sum[r]);
  }
  agreed.stop = sum[world] > 0;
  agreed.publish = sum[world + 1] > 0;
  agreed.begin = window.begin, agreed.end = window.end, agreed.micro_batches = window.micro_batches;
  agreed.voids = sum[world + 2], agreed.tokens = sum[world + 3];
  if (fault("train.local_counts")) sum = alone;
  agreed.counts.assign(sum.begin() + static_cast<int64_t>(world + kCounts), sum.end());
  return agreed;
}

Window Loop::facts(const Agreed& agreed) const {
  return {agreed.counts, progress_.step, options_.schedule.total};
}

// Forward and backward of every round; the window's sums, added in global order.
std::vector<double> Loop::train(Fetched& window, const Agreed& agreed) {
  size_t size = objective_.sum_size();
  int64_t rounds = plan::rounds(window.micro_batches, engine_.group().world());
  std::vector<double> mine(static_cast<size_t>(rounds) * size, 0);
  for (int64_t round = 0; round < rounds; ++round) {
    std::optional<model::Tensors> micro_batch;
    if (round < std::ssize(window.batches) && !window.batches[round].empty() &&
        objective_.trains(window.batch_counts[round])) {
      micro_batch = std::move(window.batches[round].tensors);
      objective_.weigh(*micro_batch, facts(agreed));
    }
    if (!objective_.trains(agreed.counts)) continue;
    model::Tensors kept = engine_.round(micro_batch, objective_.loss(), {objective_.sums()});
    if (!micro_batch) continue;
    at::Tensor sums = kept.at(objective_.sums()).to(at::kDouble).contiguous();
    SF_ASSERT(sums.numel() == static_cast<int64_t>(size));
    std::copy_n(sums.const_data_ptr<double>(), size, mine.begin() + round * static_cast<int64_t>(size));
  }
  return sum_in_global_order(mine, window.micro_batches);
}

std::vector<double> Loop::sum_in_global_order(const std::vector<double>& mine, int64_t micro_batches) {
  comm::Group& group = engine_.group();
  size_t size = objective_.sum_size();
  std::vector<double> all(mine.size() * static_cast<size_t>(group.world())), total(size, 0);
  std::vector<size_t> bytes(static_cast<size_t>(group.world()), mine.size() * sizeof(double));
  group.all_gather(std::as_bytes(std::span(mine)), bytes, std::as_writable_bytes(std::span(all)),
                   {"window sums", deadline()});
  for (int64_t k = 0; k < micro_batches; ++k) {
    plan::Turn turn = plan::turn_of(k, group.world());
    size_t from = static_cast<size_t>(turn.rank) * mine.size() + static_cast<size_t>(turn.round) * size;
    for (size_t i = 0; i < size; ++i) total[i] += all[from + i];
  }
  return total;
}

void Loop::update(const Agreed& agreed, const std::vector<double>& sums) {
  phase(comm::Span::Kind::kOptimizer);
  double lr = rate(options_.schedule, progress_.step);
  engine::StepResult result;
  // A window of void positions alone consumes them and changes nothing.
  bool trained = objective_.trains(agreed.counts);
  if (trained) result = engine_.step(lr, options_.max_norm, options_.adamw);
  compute_s_ = monotonic_s() - compute_began_;
  ++progress_.step;
  progress_.cursor = agreed.end;
  progress_.voids += agreed.voids;
  progress_.tokens += agreed.tokens;
  progress_.updates += trained && !result.skipped;
  progress_.skipped += result.skipped;
  progress_.skipped_in_a_row = result.skipped ? progress_.skipped_in_a_row + 1
                               : trained      ? 0
                                              : progress_.skipped_in_a_row;
  note_memory();
  metrics_ = trained && !result.skipped ? metrics_of(agreed, sums) : Metrics();
  checkpoints_.note(metrics_);
  if (sink_) report(agreed, sums, lr, result);
  SF_CHECK(progress_.skipped_in_a_row < options_.skip_limit, Exit::kData,
           "{} steps in a row had a non-finite gradient and were skipped, the last at {}; the last checkpoint is {}",
           progress_.skipped_in_a_row, result.culprit,
           checkpoints_.last().empty() ? "none" : checkpoints_.last().string());
  bool nothing = progress_.step >= options_.steps && progress_.updates == 0 && progress_.skipped > 0;
  SF_CHECK(!nothing || fault("train.nothing_learned"), Exit::kData,
           "none of the {} steps changed a weight: {} had a non-finite gradient and were skipped{}{}", progress_.step,
           progress_.skipped, result.skipped ? ", the last at " : "", result.culprit);
}

Metrics Loop::metrics_of(const Agreed& agreed, const std::vector<double>& sums) {
  train::Window seen = facts(agreed);
  --seen.step;  // it has been counted
  return objective_.metrics(sums, seen);
}

void Loop::report(const Agreed& agreed, const std::vector<double>& sums, double lr, const engine::StepResult& result) {
  int64_t step = progress_.step;
  if (objective_.trains(agreed.counts)) {
    for (const auto& [name, value] : metrics_of(agreed, sums)) sink_->scalar(step, name, value);
    sink_->scalar(step, "grad_norm", result.grad_norm);
    if (options_.adamw.bf16) sink_->scalar(step, "kept", result.kept);
  }
  sink_->scalar(step, "lr", lr);
  sink_->scalar(step, "tokens", static_cast<double>(agreed.tokens));
  sink_->scalar(step, "positions", static_cast<double>(agreed.end - agreed.begin));
  sink_->scalar(step, "voids", static_cast<double>(agreed.voids));
  sink_->scalar(step, "skipped", result.skipped);
  report_machine(agreed);
  sink_->flush(step);
}

// This rank's seconds since the last step, and its memory.
void Loop::report_machine(const Agreed& agreed) {
  int64_t step = progress_.step;
  engine::StepTimes times = engine_.take_times();
  double began = std::exchange(step_began_, monotonic_s());
  uint64_t sent = engine_.group().traffic().bytes_sent;
  PerfWindow window{.elapsed_s = step_began_ - began,
                    .data_wait_s = data_s_,
                    .compute_s = compute_s_,
                    .exposed_s = times.communication,
                    .samples = static_cast<int64_t>(agreed.end - agreed.begin) - agreed.voids,
                    .tokens = agreed.tokens,
                    .bytes_sent = sent - std::exchange(bytes_before_, sent)};
  for (const auto& [name, value] : perf_counters(window)) sink_->scalar(step, name, value);
  sink_->scalar(step, "time_data_s", std::exchange(data_s_, 0));
  sink_->scalar(step, "time_forward_s", times.forward);
  sink_->scalar(step, "time_backward_s", times.backward);
  sink_->scalar(step, "time_communication_s", times.communication);
  sink_->scalar(step, "time_optimizer_s", times.optimizer);
  report_memory();
}

}  // namespace sf::train
