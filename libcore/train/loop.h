// SPDX-License-Identifier: Apache-2.0
// The training loop: a window of micro-batches over all ranks, one optimizer step, numbers, a checkpoint now and then.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/metric_sink.h"
#include "comm/trace.h"
#include "data/feed.h"
#include "engine/engine.h"
#include "train/checkpoint.h"
#include "train/objective.h"
#include "train/schedule.h"

namespace sf::train {

// How positions become windows: micro-batch k of the window that starts at position c covers [c + k rows, c + (k+1)
// rows).
struct Windows {
  int64_t rows = 1;           // positions of a micro-batch
  int64_t micro_batches = 8;  // of a window, over all ranks
  uint64_t positions = 0;     // of the whole run: rows of the data set times epochs; the last window may be short

  uint64_t window_positions() const { return static_cast<uint64_t>(rows * micro_batches); }
  int64_t steps() const;  // windows that hold a position
};
// kConfig for a setting out of range.
void check(const Windows& windows);

using Metrics = std::vector<std::pair<std::string, double>>;  // of a window, by name

struct LoopOptions {
  Windows windows;
  int64_t steps = 0;  // where the run ends; at most windows.steps()
  Schedule schedule;
  engine::AdamW adamw;
  double max_norm = 0.5;         // 0: no clipping
  int64_t checkpoint_every = 0;  // steps; 0: only at the end and when stopped
  int64_t skip_limit = 10;       // steps in a row with a non-finite gradient that end the run
  double call_deadline_s = 120;  // of the loop's own collectives, on top of the wait for data
  // Of this process, for the prediction: tensors that stay and are no parameters; samples under way, outside of
  // tensors; resident memory before anything of the run was there.
  uint64_t constant_bytes = 0, sample_bytes = 0, idle_bytes = 0;
  // The most bytes that forward and backward of this micro-batch hold in tensors, its inputs apart, as the plan says
  // it. Not set: the plan does not say.
  std::function<uint64_t(const model::Tensors& micro_batch)> work_bytes;
  // Called on every rank behind each `evaluate_every`-th step (0: never) and the last, with the checkpoint that was
  // published for it and the step's metrics (empty where the run goes on from it). Changes nothing of the training; may
  // hold `evaluation_bytes` in tensors at most.
  int64_t evaluate_every = 0;
  uint64_t evaluation_bytes = 0;
  std::function<void(const std::filesystem::path& checkpoint, int64_t step, const Metrics& window)> evaluate;
};

// Bytes of one rank, predicted beside measured. Peak: in tensors. Resident: above the idle process, at the end of a
// step. Predicted peak and resident are 0 if the plan does not know the work of a micro-batch.
struct MemoryUse {
  uint64_t at_rest_predicted = 0, at_rest_measured = 0;
  uint64_t peak_predicted = 0, peak_measured = 0;
  uint64_t resident_predicted = 0, resident_measured = 0;
  uint64_t device_peak_measured = 0;  // in tensors of a GPU; 0 on the CPU, or where nobody counts
};

// What is asked of the loop at a step's start; kPublish: a checkpoint, then go on.
enum class Stop : int { kNo = 0, kFinish = 1, kPublish = 2 };

struct LoopEnd {
  Exit exit =
      Exit::kOk;  // equal on all ranks: kOk, kAgain (stopped), or what a rank's data ended with (kUnavailable, ...)
  std::string reason;                // empty for kOk
  std::filesystem::path checkpoint;  // the last one published; empty before the first step
  Progress progress;
  std::vector<MemoryUse> memory;  // by rank, equal on all
};

class Loop {
 public:
  // Borrows everything. `sink` is null on all ranks but the one that reports. `stop` is asked on each rank at each
  // step's start, its answers are joined: any rank stops all.
  Loop(engine::Engine& engine, data::Feed& feed, const Objective& objective, Checkpoints& checkpoints,
       LoopOptions options, MetricSink* sink, std::function<Stop()> stop);

  // Every rank calls it. Runs from `progress` to the end, a stop or the loss of the data; then publishes what was
  // trained (before the first step: nothing) and ends the feed in good order. Throws kData after skip_limit non-finite
  // steps in a row, and errors of the engine and of publishing.
  LoopEnd run(const Progress& progress);

 private:
  struct Fetched;
  struct Agreed;
  LoopEnd run_steps();
  Fetched fetch();
  Agreed agree(const Fetched& window);
  std::vector<double> train(Fetched& window, const Agreed& agreed);
  std::vector<double> sum_in_global_order(const std::vector<double>& mine, int64_t micro_batches);
  void update(const Agreed& agreed, const std::vector<double>& sums);
  Metrics metrics_of(const Agreed& agreed, const std::vector<double>& sums);
  void report(const Agreed& agreed, const std::vector<double>& sums, double lr, const engine::StepResult& result);
  void report_machine(const Agreed& agreed);
  Window facts(const Agreed& agreed) const;
  bool evaluation_due() const;
  void evaluate();
  void phase(comm::Span::Kind kind);
  void note_work(const std::vector<data::Batch>& batches, const std::vector<std::vector<int64_t>>& counts);
  void note_memory();
  void report_memory();
  std::vector<MemoryUse> memory_of_all();
  LoopEnd leave(Exit exit, std::string reason);
  Deadline deadline(double more_s = 0) const;

  engine::Engine& engine_;
  data::Feed& feed_;
  const Objective& objective_;
  Checkpoints& checkpoints_;
  LoopOptions options_;
  MetricSink* sink_;
  std::function<Stop()> stop_;
  Progress progress_;
  comm::Trace* trace_;  // of a traced group, else null
  double data_s_ = 0;
  double step_began_ = 0, compute_began_ = 0, compute_s_ = 0;
  uint64_t bytes_before_ = 0;
  bool copied_ = false;  // a checkpoint was written from a copy, whose memory stays
  MemoryUse memory_;
  Metrics metrics_;  // of the last window that trained
};

}  // namespace sf::train
