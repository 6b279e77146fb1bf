// SPDX-License-Identifier: Apache-2.0
// The settings of a training run that are no algorithm's own: read, judged and echoed here for --plan and for the run,
// so that what one refuses or finds without effect the other does too.
#pragma once
#include <cstdint>
#include <string>

#include "app/command.h"
#include "config/settings.h"
#include "plan/schedule.h"
#include "stream/sample.h"

namespace sf::tool {

// Applies engine.device ("cpu", "cuda"). kConfig: comm.group = "nccl" without a GPU to talk from.
std::string apply_device(config::Settings& settings);

// [comm]: how the ranks talk, and where they meet if they have to.
struct CommSettings {
  std::string group;   // "single", "shm", "gloo", "nccl"; "auto" where the ranks' hosts decide
  bool meets = false;  // over the network, as gloo ranks and those without a common parent do
  std::string interface, host, job;
  int port = 0;
  double join_deadline_s = 300;
};
// For ranks that were started so; those of a supervisor meet on loopback, told apart by its pid, 0 before it runs.
// kConfig for a group that these ranks cannot form or an interface that this host lacks, kUsage where nothing says
// where rank 0 is.
CommSettings apply_comm(config::Settings& settings, const RankEnv& ranks, int supervisor = 0);

// The rest of [engine] and [shard], beside apply_schedule.
struct EngineSettings {
  bool poison = false, host_dir_given = false;
  double call_deadline_s = 120;
  std::string host_dir;
};
EngineSettings apply_engine(config::Settings& settings, const plan::ScheduleOptions& schedule);

// [training]: windows, schedule, optimizer, checkpoints.
struct LoopSettings {
  double epochs = 1;
  int64_t rows = 1, micro_batches = 8, total_steps = 0, max_steps = 0;
  std::string schedule, best;
  double learning_rate = 0, warmup_ratio = 0;
  double beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, max_norm = 0;
  int64_t checkpoint_every = 0, max_bad_steps = 0, keep_checkpoints = 0;
  uint64_t seed = 0;

  bool drop_last = false;  // positions that fill no window are left out; else their window is padded with nothing

  uint64_t positions(uint64_t data_rows) const;  // of the whole run
};
LoopSettings apply_loop(config::Settings& settings);
// Of a window of so many prompts, whose micro-batches are made by a budget of tokens: training.batch_size and
// training.micro_batches are applied to nothing.
LoopSettings apply_prompt_loop(config::Settings& settings, int64_t prompts);
// Steps of a run over `data_rows` rows, and the length of its schedule. kConfig: none, or none at the full rate.
struct Steps {
  int64_t run = 0, schedule = 0;
};
Steps steps_of(const LoopSettings& loop, uint64_t data_rows);
// What becomes of positions that fill no window; empty: all do.
std::string last_window_line(const LoopSettings& loop, uint64_t data_rows);

// [stream] of a trainer, from --from; applied to nothing for a directory. kUsage for a --tee of one.
struct StreamSettings {
  uint64_t credit_bytes = 0;  // 0: samples lie in files
  uint64_t low_bytes = 0, cap_bytes = 0;
  double heartbeat_s = 0, rejoin_deadline_s = 0, report_s = 0;
};
StreamSettings apply_stream(app::Invocation& invocation);
// kConfig: one window's streamed samples of a rank, at their longest, pass stream.cap_mib.
void check_window_fits(const config::Settings& settings, const LoopSettings& loop, const stream::Contract& contract,
                       int world);

// training.adapter_dtype of an adapter of so many tensors (0: none is trained): are its masters bf16?
bool apply_adapter_dtype(config::Settings& settings, size_t tensors);

}  // namespace sf::tool
