// SPDX-License-Identifier: Apache-2.0
// Runs a chain of segments over sharded parameters: gather, compute, fold. A schedule, not hooks: it is known before
// step 1. Numbers: micro-batch k of a window runs on rank k mod W in round k div W; every gradient folds into fp32 in
// global order, so any world size gives the same bits.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arch/model_spec.h"
#include "base/metric_sink.h"
#include "comm/group.h"
#include "engine/host_file.h"
#include "model/segment.h"
#include "plan/schedule.h"

namespace sf::engine {

using plan::Mode;

class Exchange;

struct EngineOptions {
  plan::ScheduleOptions schedule;  // `world` and the fact of threads are filled in by the engine
  double call_deadline_s = 120;
  bool poison = false;                             // fill released slots with NaN: a read of a released parameter shows
  std::filesystem::path host_dir = "/tmp";         // where a parameter of residency host has its file without a name
  std::map<std::string, HostSource> host_sources;  // of those whose values a file holds, in the type of the plan
  std::filesystem::path spill_dir;                 // where mode offload keeps boundaries, in a file without a name
  // Where segments are computed. Shards, moments, sums and folds stay on the host: a segment's parameters are copied to
  // the device for its turn, its gradients back; frozen parameters that are whole on this rank are copied once.
  at::Device device = at::kCPU;
  // Segments that are exchanged, by name; shared because options are copied.
  std::map<std::string, std::shared_ptr<Exchange>> exchanges;
};

struct AdamW {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  // Masters and moments hold bf16 numbers alone, widened: each operation of a step is rounded (rl_lora L-10).
  bool bf16 = false;
};

struct StepResult {
  double grad_norm = 0;  // before clipping; from an exact accumulator of squares, equal for every world size
  double kept = 0;       // with AdamW::bf16, the share of trainable elements that this step left as they were
  bool skipped = false;  // a non-finite gradient: nothing was changed on any rank
  std::string culprit;   // "parameter P, rank R, micro-batch M" when skipped
  std::vector<std::string>
      unused;  // trainable parameters no micro-batch gave a gradient (zeros); each named once a run
};

// Seconds since the last take_times(), split for the report.
struct StepTimes {
  double forward = 0, backward = 0, communication = 0, optimizer = 0;
};

// Four numbers kept apart; predicted by the plan, measured by the allocator's counters (process wide; zero unless
// tensor::install_allocator() was called). At rest: what the engine holds between steps, slots and reduce buffer
// included. The predicted peak is without activations and boundaries. Off the CPU, the device's peak is measured apart.
struct MemoryReport {
  uint64_t at_rest = 0, peak_allocated = 0, host = 0, disk = 0, device_peak = 0;
};

// The plan an engine of `world` ranks would follow; needs no group. Errors: those of plan::make_schedule.
plan::Schedule make_plan(const arch::ModelSpec& spec, const std::vector<model::Segment>& segments,
                         const EngineOptions& options, int world);

class Engine {
 public:
  // `spec` names parameters and says which train; segments run in order. Master weights, gradients and moments are fp32
  // intervals of this rank. The group outlives the engine. Errors: those of plan::make_schedule.
  Engine(comm::Group& group, const arch::ModelSpec& spec, std::vector<model::Segment> segments, EngineOptions options);
  ~Engine();

  // Fills this rank's interval of a parameter (or alias). `read(lo, hi, span)` writes fp32 elements [lo, hi); it may be
  // called several times, and not at all. Every parameter must be loaded before the first round.
  using ReadInterval = std::function<void(int64_t lo, int64_t hi, std::span<float> to)>;
  void load(const std::string& parameter, const ReadInterval& read);

  // One round of a window: every rank calls it, with its micro-batch or with nothing. Runs forward, then backward from
  // the scalar boundary `loss`; folds gradients into the window's accumulators. Returns the boundaries named in `keep`
  // (detached; empty without a micro-batch). An error of one rank ends the round on all (comm::Group::abandon).
  model::Tensors round(const std::optional<model::Tensors>& micro_batch, const std::string& loss,
                       const std::vector<std::string>& keep);
  // Forward only, no graph. Every rank calls it.
  model::Tensors forward(const std::optional<model::Tensors>& inputs, const std::vector<std::string>& keep);
  // Ends the window: exact norm, clip to max_norm (0: none), AdamW on the masters, gradients zeroed.
  StepResult step(double lr, double max_norm, const AdamW& adamw);

  // The whole tensor of a trainable or frozen parameter, gathered (fp32, on every rank). For tests, export and saving.
  at::Tensor gathered(const std::string& parameter);
  // The gradient accumulated so far in this window, gathered (fp32).
  at::Tensor gathered_gradient(const std::string& parameter);

  // Optimizer state by name ("<parameter>" master, "<parameter>.exp_avg", "<parameter>.exp_avg_sq"): what this rank
  // owns. Intervals of different ranks never overlap, and cover the tensor.
  struct Piece {
    std::string name;
    Shape shape;  // of the whole tensor
    plan::Interval interval;
    std::span<float> values;
  };
  std::vector<Piece> state();
  // Fills this rank's interval of one of those, whatever world size wrote it.
  void load_state(const std::string& name, const ReadInterval& read);
  int64_t steps_done() const;
  void set_steps_done(int64_t steps);

  StepTimes take_times();
  MemoryReport predicted() const;
  MemoryReport measured() const;
  std::vector<std::string> host_lines() const;  // what lives on the host, and how; for the log
  std::string plan_text() const;                // schedule with every collective and its bytes; equal on all ranks
  const plan::Schedule& schedule() const;
  comm::Group& group();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace sf::engine
