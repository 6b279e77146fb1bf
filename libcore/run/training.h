// SPDX-License-Identifier: Apache-2.0
// What every training verb shares: the ranks' group, the run's directory, settings into options, numbers out.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "app/command.h"
#include "base/file.h"
#include "base/new_dirs.h"
#include "ckpt/as_published.h"
#include "engine/engine.h"
#include "report/metrics.h"
#include "report/spans.h"
#include "run/group.h"
#include "stream/sample.h"
#include "tool/apply_training.h"
#include "tool/host_places.h"
#include "tool/plan_request.h"
#include "train/loop.h"

namespace sf::run {

// The directory of a run: owned by one run at a time (73 names the owner), with the checkpoint to go on from.
class RunDir {
 public:
  // Every rank calls it, and must see the same directory (73). --resume auto: the newest verified checkpoint, if any;
  // PATH: that one; none (default): a run that holds checkpoints already is refused (73).
  RunDir(app::Invocation& invocation, comm::Group& group);
  RunDir(const RunDir&) = delete;
  const std::filesystem::path& path() const { return path_; }
  const std::optional<std::filesystem::path>& resume_from() const { return resume_; }

 private:
  std::filesystem::path path_;
  NewDirs made_;                 // rank 0; removed, after the lock inside it, if nothing came of it
  std::optional<DirLock> lock_;  // rank 0
  std::optional<std::filesystem::path> resume_;
};

// [engine] and [shard] into options for a model, by the function that --plan uses too. `place_of`: where the values of
// host-resident parameters lie; empty: none are in a file as they are.
engine::EngineOptions apply_engine(app::Invocation& invocation, const arch::ModelSpec& spec,
                                   const tool::PlaceOf& place_of = {});
// A mode for each segment, if engine.mode leaves it open: what --plan would say with `request`, within the smallest of
// the ranks' limits.
void choose_modes(app::Invocation& invocation, comm::Group& group, engine::EngineOptions& options,
                  const tool::RequestOf& request_of);
// [training] into the loop's options for a data set of `rows` rows.
train::LoopOptions loop_options(app::Invocation& invocation, const tool::LoopSettings& loop, uint64_t rows,
                                bool reference_quirks);
// What this rank looks at of files that all ranks read in part.
ckpt::Share share_of(const app::Invocation& invocation);
// Where the run goes on: at the checkpoint that it resumes from, else at nothing. kProtocol naming the field if
// `samples` are not those the checkpoint was trained on; a warning for each setting of [training] that differs: the
// result will then be that of no single set of settings.
train::Progress resume(app::Invocation& invocation, const RunDir& run, train::Checkpoints& checkpoints,
                       engine::Engine& engine, const stream::Contract& samples);
// The samples of --from, as --plan describes them.
tool::Samples samples_of(app::Invocation& invocation, const stream::Contract& contract);
// Of samples under way to this rank: those of two windows, at most the credit; none from a directory.
uint64_t sample_bytes(const tool::Samples& samples, const stream::Contract& contract, int world,
                      const train::LoopOptions& options);
// Threads, instruction set, library versions and device that bits depend on.
Json numerics(app::Invocation& invocation);
// What every run says of its checkpoints; the model's config, buffers and adapter are its verb's to add.
train::CheckpointOptions checkpoints_of_run(app::Invocation& invocation, const stream::Contract& contract,
                                            const tool::LoopSettings& loop);

// Metrics file, log lines and progress of rank 0; every rank's spans; the verb's ending on all. Outlives the loop.
class RunReport {
 public:
  RunReport(app::Invocation& invocation, engine::Engine& engine, const RunDir& run, int64_t resumed_step,
            int64_t steps);
  ~RunReport();
  MetricSink* sink();  // null on all ranks but 0
  // A record of another kind than a step's; on rank 0.
  void event(std::string_view name, int64_t step, const Json& fields);
  int finish(const train::LoopEnd& end);

 private:
  class Sink;
  void record_spans(comm::Group& group, const RunDir& run, int64_t resumed_step);
  app::Invocation& invocation_;
  bool first_rank_;
  std::unique_ptr<Sink> sink_;
  std::unique_ptr<report::SpanWriter> spans_;  // RUN/spans-RANK.jsonl
};

}  // namespace sf::run
