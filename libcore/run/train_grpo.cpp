// SPDX-License-Identifier: Apache-2.0
// sf-train grpo: questions -> responses -> scores -> steps of an adapter, on one rank or many.
#include <fmt/core.h>

#include <optional>

#include "base/deadline.h"
#include "ckpt/buffers.h"
#include "model/grpo.h"
#include "run/adapter_training.h"
#include "run/device.h"
#include "run/entry.h"
#include "run/grpo_run.h"
#include "run/loading.h"
#include "run/target.h"
#include "run/training.h"
#include "tool/draft_settings.h"
#include "tool/open_adapter.h"

namespace sf::run {
namespace {

train::CheckpointOptions checkpoint_options(app::Invocation& invocation, const tool::GrpoTask& task,
                                            const tool::LoopSettings& loop) {
  train::CheckpointOptions options = checkpoints_of_run(invocation, task.contract, loop);
  as_adapter(task.target, task.encoder, task.adapter, options);
  return options;
}

OpenTarget open_sampler(app::Invocation& invocation, const tool::GrpoTask& task) {
  config::Settings& settings = invocation.settings();
  const Dtype compute = *dtype_from_config(settings.get_string("target.compute_dtype"));
  gen::Target model = gen::Target::load(task.target, compute);
  settings.applied("target.compute_dtype", settings.get_string("target.compute_dtype"),
                   fmt::format("{} layers of the sampler", model.decoder().layers), "gen");
  const std::string thinking = settings.get_string("eval.thinking");
  return {
      nullptr,
      task.target,
      std::nullopt,
      text::ChatEncoder::open(
          task.target.dir(), thinking == "template" ? Json() : Json::object().set("enable_thinking", thinking == "on")),
      std::move(model),
      compute};
}

// The most that tensors of this rank take by the plan: micro-batches as large as the budget lets them be.
uint64_t planned_peak(const config::Settings& settings, const tool::GrpoTask& task, const engine::Engine& engine,
                      int rank) {
  config::Settings asked = settings;  // what the request applies is applied by the run elsewhere
  tool::PlanRequest request = tool::grpo_request(asked, task, engine.schedule().options.world);
  request.load.work_bytes = request.work(engine.schedule());
  return plan::totals_of(engine.schedule(), request.load, rank).peak;
}

int train_grpo(app::Invocation& invocation) {
  const double began = monotonic_s();
  config::Settings& settings = invocation.settings();
  const at::Device device = apply_device(invocation);
  apply_threads(invocation, "engine.threads", invocation.ranks().local_world);
  const tool::GrpoTask task = tool::open_grpo(invocation);
  const std::vector<arch::Adapter>& adapters = task.adapter.adapters();
  const arch::ModelSpec spec = arch::describe_training(task.decoder, adapters);
  engine::EngineOptions engine_options = apply_engine(invocation, spec, tool::places_in(task.target));
  engine_options.device = device;
  tool::apply_algorithm(settings, "grpo", {});
  const bool narrow = tool::apply_adapter_dtype(settings, 2 * adapters.size());
  const tool::LoopSettings loop = tool::apply_prompt_loop(settings, task.settings.prompts);
  train::LoopOptions options = loop_options(invocation, loop, task.contract.rows, false);
  options.adamw.bf16 = narrow;
  std::unique_ptr<comm::Group> group = make_group(invocation);
  RunDir run(invocation, *group);
  if (run.resume_from())
    tool::check_same_adapter(ckpt::Checkpoint::open(*run.resume_from()), task.adapter, narrow ? "bf16" : "fp32");
  Loading loading(invocation, *group, engine_options.call_deadline_s);
  loading.compare_files({{"target", task.contract.target},
                         {"adapter", task.adapter.files().identity()},
                         {"questions", task.contract.data}});
  choose_modes(invocation, *group, engine_options, [&](config::Settings& asked, int world) {
    tool::PlanRequest request = tool::grpo_request(asked, task, world);
    tool::place_host_tables(request.options, tool::places_in(task.target));
    return request;
  });
  std::optional<engine::Engine> engine;
  const model::PolicyForm form{task.settings.loss, task.settings.clip, settings.get_float("generate.temperature"),
                               task.settings.kl};
  loading.step("shards", [&] {
    engine.emplace(*group, spec, model::grpo_segments(task.decoder, adapters, form), engine_options);
  });
  std::optional<OpenTarget> target;
  loading.step("sampler", [&] { target.emplace(open_sampler(invocation, task)); });
  const gen::GenerateOptions sampling = generate_options(invocation, *target);
  train::CheckpointOptions kept = checkpoint_options(invocation, task, loop);
  kept.bf16 = narrow;
  train::Checkpoints checkpoints(std::move(kept));
  app::settle_settings(invocation);
  loading.step("buffers", [&] { ckpt::check_buffers(task.target, spec); });
  loading.step("values", [&] { load_parameters(*engine, spec, task.target, &task.adapter, narrow); });
  train::Progress progress;
  loading.step("state", [&] { progress = resume(invocation, run, checkpoints, *engine, task.contract); });
  loading.finish();
  RunReport report(invocation, *engine, run, progress.step, options.steps);
  GrpoRun grpo(
      {.invocation = invocation,
       .task = task,
       .engine = *engine,
       .model = target->model,
       .sampling = sampling,
       .checkpoints = checkpoints,
       .loop = options,
       .run_dir = run.path(),
       .sink = report.sink(),
       .began = began,
       .peak_predicted = is_planned(device, invocation) ? planned_peak(settings, task, *engine, group->rank()) : 0});
  return report.finish(grpo.run(progress));
}

}  // namespace
}  // namespace sf::run

extern "C" int sf_train_grpo(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::train_grpo(*invocation); });
}
