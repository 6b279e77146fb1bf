// SPDX-License-Identifier: Apache-2.0
// sf-train eagle3: samples -> windows -> steps -> checkpoints, on one rank or many.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "arch/eagle3.h"
#include "base/error.h"
#include "ckpt/draft.h"
#include "config/apply.h"
#include "data/feed.h"
#include "engine/engine.h"
#include "model/eagle3.h"
#include "report/metrics.h"
#include "run/entry.h"
#include "run/samples.h"
#include "run/target.h"
#include "run/training.h"
#include "tensor/convert.h"
#include "train/eagle3.h"
#include "train/loop.h"

namespace sf::run {
namespace {

namespace fs = std::filesystem;
using config::Apply;
constexpr double kDataWait = 600;  // of one position; the stream itself notices a dead producer much sooner

// A draft and the parts of its target that training reads.
struct Draft {
  ckpt::Checkpoint files, target;
  ckpt::TargetLink link;
  arch::Eagle3 shape;
  model::Eagle3Vocabulary vocabulary;
  std::vector<NamedTensor> buffers;  // t2d, d2t as stored
};

Draft open_draft(app::Invocation& invocation) {
  ckpt::Checkpoint files = ckpt::Checkpoint::open(invocation.get("draft"));
  ckpt::TargetLink link = ckpt::target_of(files);
  std::string path = invocation.get("target", link.path);
  SF_CHECK(fs::exists(path), Exit::kNoInput, "the target of draft {} is not at {}; give --target DIR",
           files.dir().string(), path);
  ckpt::Checkpoint target = ckpt::Checkpoint::open(path);
  ckpt::check_target(files, target);
  Draft draft{
      .files = files, .target = std::move(target), .link = link, .shape = arch::eagle3_from_config(files.config())};
  ckpt::read_vocab_map(files);  // refuses buffers that disagree
  for (const char* name : {"t2d", "d2t"}) draft.buffers.push_back({name, HostTensor::copy_of(files.view(name))});
  draft.vocabulary.t2d = tensor::copy(draft.buffers[0].tensor.view()).to(at::kBool);
  draft.vocabulary.d2t = tensor::copy(draft.buffers[1].tensor.view());
  return draft;
}

stream::Contract wanted_contract(const Draft& draft) {
  stream::Contract wanted;
  wanted.algorithm = "eagle3";
  wanted.target = draft.target.identity();
  wanted.tokenizer = draft.link.tokenizer;
  wanted.chat_template = draft.link.chat_template;
  wanted.layers = eagle3_layers(draft.shape);
  wanted.vocab = draft.shape.vocab;
  wanted.hidden = draft.shape.target_hidden;
  return wanted;
}

engine::Engine::ReadInterval from_checkpoint(const ckpt::Checkpoint& files, std::string name) {
  return [&files, name](int64_t lo, int64_t hi, std::span<float> to) {
    files.read(name, lo, hi, Dtype::kF32, std::as_writable_bytes(to));
  };
}

// Elements of the target head's rows that belong to the draft vocabulary, row by row.
engine::Engine::ReadInterval from_head_rows(const Draft& draft) {
  const ckpt::Checkpoint& target = draft.target;
  std::span<const int64_t> offsets = draft.buffers[1].tensor.as<int64_t>();
  return [&target, offsets, width = draft.shape.target_hidden](int64_t lo, int64_t hi, std::span<float> to) {
    for (int64_t at = lo; at < hi;) {
      int64_t row = at / width, column = at % width, count = std::min(width - column, hi - at);
      int64_t start = (row + offsets[static_cast<size_t>(row)]) * width + column;
      target.read("lm_head.weight", start, start + count, Dtype::kF32,
                  std::as_writable_bytes(to.subspan(static_cast<size_t>(at - lo), static_cast<size_t>(count))));
      at += count;
    }
  };
}

void load_parameters(engine::Engine& engine, const arch::ModelSpec& spec, const Draft& draft) {
  for (const arch::Parameter& parameter : spec.parameters) {
    if (parameter.name == arch::kTargetHead)
      engine.load(parameter.name, from_head_rows(draft));
    else if (draft.files.contains(parameter.name))
      engine.load(parameter.name, from_checkpoint(draft.files, parameter.name));
    else if (auto taken = draft.link.taken.find(parameter.name); taken != draft.link.taken.end())
      engine.load(parameter.name, from_checkpoint(draft.target, taken->second));
    else
      fail(Exit::kData, "draft {} lacks {}", draft.files.dir().string(), parameter.name);
  }
}

model::Eagle3Options eagle3_options(config::Settings& settings) {
  return {.unroll = static_cast<int>(Apply(settings, "1 segment", "model").whole("training.unroll")),
          .reference_quirks = Apply(settings, "loss and schedule", "train").flag("training.reference_quirks")};
}

data::Feed make_feed(stream::Source& source, const Draft& draft, Dtype compute) {
  data::Eagle3Shape shape{.vocab = draft.shape.vocab,
                          .target_hidden = draft.shape.target_hidden,
                          .max_length = source.contract().max_length,
                          .compute = compute};
  auto collate = [shape](std::span<const stream::Sample> samples) { return data::collate_eagle3(samples, shape); };
  return data::Feed(source, collate, kDataWait);
}

// What the run's directory says of this run, kept in every checkpoint.
train::CheckpointOptions checkpoint_options(app::Invocation& invocation, const Draft& draft,
                                            const stream::Contract& contract) {
  config::Settings& settings = invocation.settings();
  train::CheckpointOptions options{.run_dir = invocation.get("output"),
                                   .model_config = draft.files.config(),
                                   .buffers = draft.buffers,
                                   .contract = contract.to_json(),
                                   .config = settings.resolved(),
                                   .numerics = numerics(invocation)};
  if (!draft.shape.norm_output) options.also_frozen = {"norm.weight"};
  options.seed = static_cast<uint64_t>(Apply(settings, "the manifest", "train").whole("training.seed"));
  options.keep = Apply(settings, options.run_dir.string(), "train").whole("training.keep_checkpoints");
  options.extra = draft.files.manifest().extra;
  options.recompute = draft.files.manifest().recompute;
  return options;
}

// What a signal, or a producer that was told to stop, asks of the loop.
train::Stop wanted_stop(app::Invocation& invocation, const stream::Source& source) {
  app::Stop asked = invocation.stop();
  if (asked == app::Stop::kPublishAndGoOn) return train::Stop::kPublish;
  return asked != app::Stop::kNone || producer_stopping(source) ? train::Stop::kFinish : train::Stop::kNo;
}

int train_eagle3(app::Invocation& invocation) {
  config::Settings& settings = invocation.settings();
  apply_device(invocation);
  apply_threads(invocation, "engine.threads", invocation.ranks().local_world);
  Draft draft = open_draft(invocation);
  model::Eagle3Options eagle3 = eagle3_options(settings);
  engine::EngineOptions engine_options = apply_engine(invocation, {"embed_tokens.weight", arch::kTargetHead});
  arch::ModelSpec spec = arch::describe_training(draft.shape);
  std::vector<model::Segment> segments{model::eagle3_segment(draft.shape, draft.vocabulary, eagle3)};
  if (invocation.plan_only()) {
    plan::Schedule schedule = engine::make_plan(spec, segments, engine_options, invocation.ranks().world);
    Json json = Json::object().set("digest", schedule.digest()).set("plan", schedule.text());
    invocation.result(invocation.json_output() ? json.dump() : schedule.text());
    return 0;
  }
  std::unique_ptr<comm::Group> group = make_group(invocation);
  RunDir run(invocation, *group);
  std::unique_ptr<stream::Source> source = open_source(invocation, *group, wanted_contract(draft));
  engine::Engine engine(*group, spec, segments, engine_options);
  train::LoopOptions loop_options = apply_loop(invocation, source->contract().rows, eagle3.reference_quirks);
  train::Checkpoints checkpoints(checkpoint_options(invocation, draft, source->contract()));
  train::Eagle3Objective objective(draft.vocabulary, eagle3);
  data::Feed feed = make_feed(*source, draft, engine_options.schedule.compute);
  app::settle_settings(invocation);
  load_parameters(engine, spec, draft);
  train::Progress progress;
  if (std::optional<fs::path> from = run.resume_from()) {
    ckpt::Checkpoint checkpoint = ckpt::Checkpoint::open(*from);
    check_same_run(invocation, checkpoint.manifest(), source->contract());
    progress = checkpoints.load(engine, checkpoint);
    invocation.log(
        fmt::format("resumed from {}: step {}, position {}", from->string(), progress.step, progress.cursor));
  }
  RunReport report(invocation, *group, run, progress.step, loop_options.steps);
  train::Loop loop(engine, feed, objective, checkpoints, loop_options, report.sink(),
                   [&] { return wanted_stop(invocation, *source); });
  train::LoopEnd end = loop.run(progress);
  publish_tee(invocation, *group, *source, end.exit == Exit::kOk);
  return report.finish(end);
}

}  // namespace
}  // namespace sf::run

extern "C" int sf_train_eagle3(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::train_eagle3(*invocation); });
}
