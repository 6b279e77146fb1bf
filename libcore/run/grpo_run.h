// SPDX-License-Identifier: Apache-2.0
// The steps of sf-train grpo on one rank: responses, their scores, an update, the adapter into the sampler, held-out
// answers, checkpoints.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/command.h"
#include "base/metric_sink.h"
#include "engine/engine.h"
#include "gen/local_sampler.h"
#include "run/grpo_records.h"
#include "run/phases.h"
#include "tool/reward_program.h"
#include "train/checkpoint.h"
#include "train/grpo.h"
#include "train/loop.h"

namespace sf::run {

class GrpoRun {
 public:
  struct Parts {
    app::Invocation& invocation;
    const tool::GrpoTask& task;
    engine::Engine& engine;
    gen::Target& model;  // of the sampler
    const gen::GenerateOptions& sampling;
    train::Checkpoints& checkpoints;
    const train::LoopOptions& loop;
    std::filesystem::path run_dir;
    MetricSink* sink;         // null on all ranks but 0
    double began;             // monotonic seconds: what comes before the first step is the cold start
    uint64_t peak_predicted;  // bytes of this rank, in tensors; 0: the plan does not say
  };
  explicit GrpoRun(const Parts& parts);

  // Every rank calls it. Runs from `from` to the last step or a request to stop, and publishes what was learned. An
  // error of one rank ends all.
  train::LoopEnd run(const train::Progress& from);

 private:
  // What was drawn for a step.
  struct Rollout {
    std::vector<size_t> rows;  // the question of each response
    std::vector<train::Response> responses;
    Judged judged;
    uint64_t positions = 0;                      // that it took
    std::optional<std::vector<size_t>> learned;  // the responses that the step learns from; nothing: all
    void append(Rollout more);
  };
  train::LoopEnd steps();
  train::LoopEnd leave(Exit exit, std::string reason);
  bool stop_asked();
  void enter(const std::string& phase);
  void say(const std::string& name, double value);
  void publish();
  std::vector<gen::Prompt> prompts_from(uint64_t position) const;
  size_t row_of(uint64_t position) const;
  std::optional<Rollout> draw(uint64_t from);
  std::optional<Rollout> roll_out();
  std::vector<double> scores_of(Rollout& rollout, const std::vector<gen::Completion>& drawn);
  std::vector<double> programs_scores(Rollout& rollout, const std::vector<gen::Completion>& drawn);
  Judged judge(const tool::Asked& asked, const std::vector<size_t>& rows,
               const std::vector<gen::Completion>& answers) const;
  void learn(const Rollout& rollout);
  void report(const train::GrpoResult& result, const Rollout& rollout, double rate);
  bool evaluation_is_due() const;
  bool evaluation_is_owed();
  bool evaluate();
  void tell(const score::Reading& held);
  train::MemoryUse memory() const;
  void flush();

  Parts p_;
  const tool::GrpoTask& task_;
  comm::Group& group_;
  Phases phases_;
  gen::LocalSampler sampler_;
  train::GrpoTrainer trainer_;
  gen::GenerateOptions drawn_, greedy_;
  std::optional<GrpoRecords> records_;            // of rank 0
  std::unique_ptr<tool::RewardProgram> program_;  // of rank 0, where there is one
  train::Progress progress_;
  double began_ = 0;  // of the step
};

}  // namespace sf::run
