// SPDX-License-Identifier: Apache-2.0
#include "run/train_draft.h"

#include <fmt/format.h>

#include <set>

#include "arch/drafts.h"
#include "base/error.h"
#include "ckpt/as_published.h"
#include "ckpt/buffers.h"
#include "run/acceptance.h"
#include "run/device.h"
#include "run/entry.h"
#include "run/loading.h"
#include "run/samples.h"
#include "run/training.h"
#include "tensor/memory.h"
#include "tool/draft_settings.h"
#include "tool/plan_request.h"
#include "train/loop.h"

namespace sf::run {
namespace {

constexpr double kStreamWait = 600;  // for one position; the stream itself notices a dead producer much sooner

engine::Engine::ReadInterval from_checkpoint(const ckpt::Checkpoint& files, std::string name) {
  return [&files, name](int64_t lo, int64_t hi, std::span<float> to) {
    files.read(name, lo, hi, Dtype::kF32, std::as_writable_bytes(to));
  };
}

void load_parameters(engine::Engine& engine, const DraftFiles& draft, const DraftAlgorithm& algorithm) {
  for (const arch::Parameter& parameter : algorithm.spec().parameters) {
    if (auto reader = algorithm.reader(parameter.name))
      engine.load(parameter.name, *reader);
    else if (draft.files.contains(parameter.name))
      engine.load(parameter.name, from_checkpoint(draft.files, parameter.name));
    else if (auto taken = draft.link.taken.find(parameter.name); taken != draft.link.taken.end())
      engine.load(parameter.name, from_checkpoint(draft.target, taken->second));
    else
      fail(Exit::kData, "draft {} lacks {}", draft.files.dir().string(), parameter.name);
  }
}

// What a run takes of the target.
std::set<std::string> tables_of(const DraftFiles& draft, const arch::ModelSpec& spec) {
  std::set<std::string> names;
  for (const auto& [own, name] : draft.link.taken) names.insert(name);
  for (const arch::Parameter& parameter : spec.parameters)
    if (parameter.name == arch::kTargetHead) names.insert("lm_head.weight");
  return names;
}

// What the run's directory says of this run, kept in every checkpoint.
train::CheckpointOptions checkpoint_options(app::Invocation& invocation, const DraftFiles& draft,
                                            const DraftAlgorithm& algorithm, const stream::Contract& contract,
                                            const tool::LoopSettings& loop) {
  train::CheckpointOptions options = checkpoints_of_run(invocation, contract, loop);
  options.model_config = draft.files.config();
  options.buffers = algorithm.buffers();
  options.also_frozen = algorithm.also_frozen();
  options.extra = draft.files.manifest().extra;
  options.buffer_records = ckpt::buffer_records(algorithm.spec());
  return options;
}

// What a signal, or a producer that was told to stop, asks of the loop.
train::Stop wanted_stop(app::Invocation& invocation, const stream::Source& source) {
  app::Stop asked = invocation.stop();
  if (asked == app::Stop::kPublishAndGoOn) return train::Stop::kPublish;
  return asked != app::Stop::kNone || producer_stopping(source) ? train::Stop::kFinish : train::Stop::kNo;
}

// A producer that is not told of a refusal would take it for a death.
template <typename Act>
auto or_refuse(const stream::Source& source, Act&& act) {
  try {
    return act();
  } catch (const Error& error) {
    if (error.code() == Exit::kProtocol) refuse(source, error);
    throw;
  }
}

}  // namespace

int train_draft(app::Invocation& invocation, const DraftVerb& verb) {
  const at::Device device = apply_device(invocation);
  apply_threads(invocation, "engine.threads", invocation.ranks().local_world);
  DraftFiles draft = tool::open_draft(invocation);
  const Json& config = draft.files.config();
  const arch::DraftFamily& family = arch::draft_family(config, verb.name);  // refuses another
  std::unique_ptr<DraftAlgorithm> algorithm = verb.make(draft, invocation.settings());
  tool::apply_algorithm(invocation.settings(), verb.name, config);
  const tool::LoopSettings loop_settings = tool::apply_loop(invocation.settings());
  const tool::HeldOut held_out = tool::held_out(invocation, draft);
  arch::ModelSpec spec = algorithm->spec();
  engine::EngineOptions engine_options = apply_engine(invocation, spec, tool::places_of(draft));
  engine_options.device = device;
  std::vector<model::Segment> segments = algorithm->segments();
  std::unique_ptr<comm::Group> group = make_group(invocation);
  RunDir run(invocation, *group);
  Loading loading(invocation, *group, engine_options.call_deadline_s);
  loading.compare_files({{"draft", draft.files.identity()}, {"target", draft.target.identity()}});
  std::unique_ptr<stream::Source> source = open_source(invocation, *group, tool::wanted_contract(draft));
  tool::Samples samples = samples_of(invocation, source->contract());
  if (samples.credit_bytes > 0)
    tool::check_window_fits(invocation.settings(), loop_settings, source->contract(), group->world());
  choose_modes(invocation, *group, engine_options, [&](config::Settings& settings, int world) {
    tool::PlanRequest request = tool::draft_request(settings, family, config, draft.tied(), samples, world);
    tool::place_host_tables(request.options, tool::places_of(draft));
    request.load.evaluation_bytes = held_out.bytes;
    return request;
  });
  const uint64_t idle_bytes = tensor::resident_bytes();
  std::optional<engine::Engine> held;
  loading.step("shards", [&] { held.emplace(*group, spec, segments, engine_options); });
  engine::Engine& engine = *held;
  for (const std::string& line : engine.host_lines()) invocation.log("host-resident " + line);
  train::LoopOptions options =
      loop_options(invocation, loop_settings, source->contract().rows, algorithm->reference_quirks);
  options.idle_bytes = idle_bytes;
  options.constant_bytes = algorithm->constant_bytes();
  options.sample_bytes = sample_bytes(samples, source->contract(), group->world(), options);
  if (is_planned(device, invocation)) options.work_bytes = algorithm->work_bytes(engine.schedule());
  train::Checkpoints checkpoints(checkpoint_options(invocation, draft, *algorithm, source->contract(), loop_settings));
  std::unique_ptr<train::Objective> objective = algorithm->objective();
  data::Feed feed(*source, algorithm->collate(source->contract().max_length, engine_options.schedule.compute),
                  samples.credit_bytes == 0 ? options.call_deadline_s : kStreamWait);
  app::settle_settings(invocation);
  loading.step("buffers", [&] { ckpt::check_buffers(draft.files, spec); });
  loading.step("values", [&] {
    ckpt::check_share(draft.files, share_of(invocation));
    ckpt::check_share(draft.target, tables_of(draft, spec), share_of(invocation));
    load_parameters(engine, draft, *algorithm);
  });
  train::Progress progress;
  loading.step("state", [&] {
    progress = or_refuse(*source, [&] { return resume(invocation, run, checkpoints, engine, source->contract()); });
  });
  loading.finish();
  RunReport report(invocation, engine, run, progress.step, options.steps);
  const Acceptance acceptance(invocation, *group, draft, held_out,
                              [&] { return wanted_stop(invocation, *source) == train::Stop::kFinish; });
  options.evaluate_every = held_out.interval;
  options.evaluation_bytes = held_out.bytes;
  options.evaluate = [&](const std::filesystem::path& checkpoint, int64_t step, const train::Metrics& window) {
    acceptance.evaluate(checkpoint, step, window, report);
  };
  train::Loop loop(engine, feed, *objective, checkpoints, options, report.sink(),
                   [&] { return wanted_stop(invocation, *source); });
  train::LoopEnd end = loop.run(progress);
  explain_stream(invocation, *group, *source);
  publish_tee(invocation, *group, *source, end.exit == Exit::kOk);
  return report.finish(end);
}

}  // namespace sf::run
