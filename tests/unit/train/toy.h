// SPDX-License-Identifier: Apache-2.0
// A small EAGLE3 draft, a source that makes its rows up, and a whole run of the loop on a threads group.
#pragma once
#include <ATen/ops/zeros.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "comm/group.h"
#include "data/feed.h"
#include "model/eagle3.h"
#include "tensor/convert.h"
#include "tensor/threads.h"
#include "train/eagle3.h"
#include "train/loop.h"

namespace sf::test {

inline arch::Eagle3 toy_draft() {
  arch::Eagle3 draft;
  draft.vocab = 40, draft.draft_vocab = 16, draft.hidden = 16, draft.target_hidden = 16, draft.intermediate = 24;
  draft.heads = 4, draft.kv_heads = 2, draft.head_dim = 4, draft.max_positions = 64, draft.rms_eps = 1e-6;
  return draft;
}

inline model::Eagle3Vocabulary toy_vocabulary(const arch::Eagle3& draft) {
  model::Eagle3Vocabulary vocabulary{at::zeros({draft.vocab}, at::kBool), at::zeros({draft.draft_vocab}, at::kLong)};
  for (int64_t i = 0; i < draft.draft_vocab; ++i) {
    vocabulary.t2d.mutable_data_ptr<bool>()[2 * i] = true;
    vocabulary.d2t.mutable_data_ptr<int64_t>()[i] = i;
  }
  return vocabulary;
}

// Rows are a function of their number alone. Row numbers in `voids` are void; in `poisoned`, not finite.
struct ToySource : stream::Source {
  stream::Contract promise;
  std::vector<uint64_t> voids, poisoned;
  std::optional<uint64_t> lost_from;  // positions from here on are never answered
  bool finished = false;

  ToySource() { promise.rows = 10, promise.order_seed = 5, promise.max_length = 20; }
  const stream::Contract& contract() const override { return promise; }
  void want(std::span<const uint64_t>) override {}
  void finish() override { finished = true; }
  stream::Sample get(uint64_t position, Deadline) override {
    if (lost_from && position >= *lost_from) fail(Exit::kUnavailable, "the producer is gone");
    stream::Sample sample;
    sample.position = position;
    sample.row = stream::place_of(position, promise.rows, promise.order_seed).row;
    if (std::find(voids.begin(), voids.end(), sample.row) != voids.end()) {
      sample.void_reason = "empty";
      return sample;
    }
    fill(sample);
    return sample;
  }

  void fill(stream::Sample& sample) const {
    Rng rng(sample.row, "toy");
    int64_t length = 6 + static_cast<int64_t>(rng.below(9, 0));
    HostTensor ids(Dtype::kI32, {length}), mask(Dtype::kU8, {length}), top1(Dtype::kI32, {length}),
        lse(Dtype::kF32, {length});
    HostTensor hidden(Dtype::kF32, {length, 48}), final_norm(Dtype::kF32, {length, 16});
    for (int64_t j = 0; j < length; ++j) {
      ids.as<int32_t>()[j] = static_cast<int32_t>(rng.below(40, 1, j));
      mask.as<uint8_t>()[j] = j >= 2 && rng.below(5, 2, j) > 0;
      top1.as<int32_t>()[j] = static_cast<int32_t>(rng.below(40, 3, j));
      lse.as<float>()[j] = 4;
    }
    for (int64_t i = 0; i < length * 48; ++i) hidden.as<float>()[i] = rng.normal(4, i);
    for (int64_t i = 0; i < length * 16; ++i) final_norm.as<float>()[i] = rng.normal(5, i);
    if (std::find(poisoned.begin(), poisoned.end(), sample.row) != poisoned.end()) hidden.as<float>()[0] = NAN;
    sample.tensors = {{"input_ids", ids},  {"loss_mask", mask},      {"target_top1", top1},
                      {"target_lse", lse}, {"hidden_state", hidden}, {"final_norm", final_norm}};
  }
};

struct Record : MetricSink {
  std::map<std::string, std::vector<double>> values;  // without times and memory
  void scalar(int64_t, std::string_view name, double value) override {
    if (!name.starts_with("time_") && !name.starts_with("memory_") && !name.starts_with("perf/"))
      values[std::string(name)].push_back(value);
  }
  void flush(int64_t) override {}
};

struct ToyPlan {
  int world = 1;
  std::filesystem::path run_dir;
  train::Windows windows{1, 12, 60};
  int64_t steps = 5, checkpoint_every = 0, keep = 0, skip_limit = 3;
  int64_t stop_at = -1;  // rank 1 mod world asks to stop once it has begun this many steps
  bool resume = false;   // from the newest checkpoint of run_dir
  ToySource source;      // copied for each rank
  plan::Layout layout = plan::Layout::kDim0;
  int unroll = 3;
  double rate = 3e-3;
  int replicas = 1;
};

struct ToyRun {
  train::LoopEnd end;
  Record record;
  std::map<std::string, at::Tensor> weights;
  std::vector<Exit> exits;  // by rank
  bool finished = true;     // every rank ended its source in good order
};

inline void load_toy(engine::Engine& engine, const arch::ModelSpec& spec) {
  for (const arch::Parameter& parameter : spec.parameters) {
    Rng rng(3, parameter.name);
    bool norm = parameter.shape.size() == 1;
    engine.load(parameter.name, [&](int64_t lo, int64_t hi, std::span<float> to) {
      for (int64_t i = lo; i < hi; ++i) to[i - lo] = norm ? 1 : 0.2f * rng.normal(i);
    });
  }
}

inline ToyRun run_toy(const ToyPlan& plan) {
  arch::Eagle3 draft = toy_draft();
  arch::ModelSpec spec = arch::describe_training(draft);
  model::Eagle3Options options{plan.unroll, false};
  ToyRun run;
  run.exits.resize(plan.world);
  std::mutex mutex;
  comm::run_threads(plan.world, [&](comm::Group& group) {
    tensor::set_threads(1);
    model::Eagle3Vocabulary vocabulary = toy_vocabulary(draft);
    engine::Engine engine(group, spec, model::eagle3_segments(draft, vocabulary, options),
                          {.schedule = {.layout = plan.layout, .replicas = plan.replicas}});
    load_toy(engine, spec);
    train::CheckpointOptions where{
        plan.run_dir,
        arch::eagle3_to_config(draft),
        {{"t2d", tensor::to_host(vocabulary.t2d)}, {"d2t", tensor::to_host(vocabulary.d2t)}}};
    where.keep = plan.keep;
    train::Checkpoints checkpoints(where);
    train::Progress progress;
    if (plan.resume)
      progress = checkpoints.load(engine, ckpt::Checkpoint::open(ckpt::latest_checkpoint(plan.run_dir).value()));
    ToySource source = plan.source;
    data::Feed feed(
        source,
        [](std::span<const stream::Sample> samples) {
          return data::collate_eagle3(samples, {40, 16, 20});
        },
        10);
    train::Eagle3Objective objective(vocabulary, options);
    train::LoopOptions loop_options{plan.windows, plan.steps, {train::Decay::kCosine, plan.rate, 0.2, plan.steps}};
    loop_options.checkpoint_every = plan.checkpoint_every;
    loop_options.skip_limit = plan.skip_limit;
    int64_t asked = 0;
    bool asks = group.rank() == 1 % group.world() && plan.stop_at >= 0;
    train::Loop loop(engine, feed, objective, checkpoints, loop_options, group.rank() == 0 ? &run.record : nullptr,
                     [&] { return asks && asked++ >= plan.stop_at ? train::Stop::kFinish : train::Stop::kNo; });
    train::LoopEnd end = loop.run(progress);
    std::map<std::string, at::Tensor> weights;
    for (const arch::Parameter& parameter : spec.parameters)
      if (parameter.trainable) weights[parameter.name] = engine.gathered(parameter.name).clone();
    std::lock_guard lock(mutex);
    run.exits[group.rank()] = end.exit;
    run.finished = run.finished && source.finished;
    if (group.rank() == 0) run.end = end, run.weights = std::move(weights);
  });
  return run;
}

}  // namespace sf::test
