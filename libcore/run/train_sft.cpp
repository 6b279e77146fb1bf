// SPDX-License-Identifier: Apache-2.0
// sf-train sft: chats -> windows -> steps of every parameter of a target, or of an adapter, on one rank or many.
#include <algorithm>

#include "arch/decoder.h"
#include "base/error.h"
#include "base/present.h"
#include "ckpt/adapter.h"
#include "ckpt/as_published.h"
#include "ckpt/buffers.h"
#include "ckpt/checkpoint.h"
#include "data/feed.h"
#include "engine/engine.h"
#include "model/sft.h"
#include "plan/work.h"
#include "run/adapter_training.h"
#include "run/device.h"
#include "run/entry.h"
#include "run/loading.h"
#include "run/training.h"
#include "tensor/memory.h"
#include "tool/chats.h"
#include "tool/draft_settings.h"
#include "tool/host_places.h"
#include "tool/open_adapter.h"
#include "tool/plan_request.h"
#include "train/loop.h"
#include "train/sft.h"

namespace sf::run {
namespace {

struct Model {
  ckpt::Checkpoint files;
  text::ChatEncoder encoder;
  arch::Decoder decoder;
  std::optional<ckpt::AdapterFiles> adapter;  // none: every parameter trains
  std::vector<arch::Adapter> adapters;
};

Model open_model(app::Invocation& invocation) {
  ckpt::Checkpoint files = ckpt::Checkpoint::open(invocation.get("target"));
  text::ChatEncoder encoder = text::ChatEncoder::open(files.dir());
  arch::Decoder decoder = arch::decoder_from_config(files.config());
  std::optional<ckpt::AdapterFiles> adapter = tool::open_trained_adapter(invocation, files);
  std::vector<arch::Adapter> adapters = tool::adapters_in(adapter);
  return {std::move(files), std::move(encoder), std::move(decoder), std::move(adapter), std::move(adapters)};
}

// Checkpoints are targets themselves: fp32 weights, words and template beside them.
train::CheckpointOptions checkpoint_options(app::Invocation& invocation, const Model& model,
                                            const arch::ModelSpec& spec, const stream::Contract& contract,
                                            const tool::LoopSettings& loop) {
  train::CheckpointOptions options = checkpoints_of_run(invocation, contract, loop);
  options.model_config = model.files.config();
  if (model.adapter) {
    as_adapter(model.files, model.encoder, *model.adapter, options);
    return options;
  }
  arch::Decoder stored = model.decoder;
  stored.stored = Dtype::kF32;
  const Json ours = arch::decoder_to_config(stored);
  for (const auto& [key, value] : ours.as_object()) options.model_config.set(key, value);
  options.aliases = spec.aliases;
  options.buffer_records = ckpt::buffer_records(spec);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
                           "generation_config.json"})
    if (is_present(model.files.dir() / name)) options.side_files.push_back(model.files.dir() / name);
  return options;
}

train::Stop wanted_stop(app::Invocation& invocation) {
  app::Stop asked = invocation.stop();
  if (asked == app::Stop::kPublishAndGoOn) return train::Stop::kPublish;
  return asked != app::Stop::kNone ? train::Stop::kFinish : train::Stop::kNo;
}

int train_sft(app::Invocation& invocation) {
  const at::Device device = apply_device(invocation);
  apply_threads(invocation, "engine.threads", invocation.ranks().local_world);
  Model model = open_model(invocation);
  arch::ModelSpec spec = arch::describe_training(model.decoder, model.adapters);
  engine::EngineOptions engine_options = apply_engine(invocation, spec, tool::places_in(model.files));
  engine_options.device = device;
  tool::apply_algorithm(invocation.settings(), "sft", {});
  const bool narrow = tool::apply_adapter_dtype(invocation.settings(), 2 * model.adapters.size());
  const tool::LoopSettings loop_settings = tool::apply_loop(invocation.settings());
  std::vector<model::Segment> segments = model::sft_segments(model.decoder, model.adapters);
  tool::Chats chats = tool::read_chats(invocation, model.encoder, model.decoder.max_positions);
  int64_t longest = chats.longest();
  std::unique_ptr<comm::Group> group = make_group(invocation);
  RunDir run(invocation, *group);
  if (run.resume_from())
    tool::check_same_adapter(ckpt::Checkpoint::open(*run.resume_from()), model.adapter, narrow ? "bf16" : "fp32");
  if (group->rank() == 0) tool::write_rejected(invocation, chats.rows, run.path() / "rejected.jsonl");
  stream::Contract contract =
      tool::sft_contract(model.files, model.encoder, model.decoder, chats, engine_options.schedule.compute);
  Loading loading(invocation, *group, engine_options.call_deadline_s);
  loading.compare_files({{"target", contract.target},
                         {"adapter", model.adapter ? model.adapter->files().identity() : ""},
                         {"data", contract.data}});
  std::unique_ptr<stream::Source> source = tool::chat_source(std::move(chats), contract);
  choose_modes(invocation, *group, engine_options, [&](config::Settings& settings, int world) {
    tool::PlanRequest request = tool::sft_request(settings, model.decoder, model.adapters, {.width = longest}, world);
    tool::place_host_tables(request.options, tool::places_in(model.files));
    return request;
  });
  const uint64_t idle_bytes = tensor::resident_bytes();
  std::optional<engine::Engine> held;
  loading.step("shards", [&] { held.emplace(*group, spec, segments, engine_options); });
  engine::Engine& engine = *held;
  for (const std::string& line : engine.host_lines()) invocation.log("host-resident " + line);
  train::LoopOptions options = loop_options(invocation, loop_settings, contract.rows, false);
  options.idle_bytes = idle_bytes;
  options.adamw.bf16 = narrow;
  if (is_planned(device, invocation))
    options.work_bytes = [&, seen = int64_t{0}](const model::Tensors& batch) mutable {
      const at::Tensor& ids = batch.at("ids");
      seen = std::max(seen, ids.size(1));
      int64_t labels = batch.at("labels").ge(0).sum().item<int64_t>();
      const plan::SftBatch shape{ids.size(0), ids.size(1), labels};
      return plan::sft_work(model.decoder, spec, engine.schedule(), shape, model.adapters) +
             plan::rotary_bytes(model.decoder.rotary_dims(), seen);
    };
  train::CheckpointOptions kept = checkpoint_options(invocation, model, spec, contract, loop_settings);
  kept.bf16 = narrow;
  train::Checkpoints checkpoints(std::move(kept));
  train::SftObjective objective;
  auto collate = [&](std::span<const stream::Sample> samples) {
    return data::collate_sft(samples, model.decoder.vocab, contract.max_length);
  };
  data::Feed feed(*source, collate, options.call_deadline_s);  // rows are in memory
  app::settle_settings(invocation);
  loading.step("buffers", [&] { ckpt::check_buffers(model.files, spec); });
  loading.step("values", [&] {
    ckpt::check_share(model.files, share_of(invocation));
    load_parameters(engine, spec, model.files, model.adapter ? &*model.adapter : nullptr, narrow);
  });
  train::Progress progress;
  loading.step("state", [&] { progress = resume(invocation, run, checkpoints, engine, contract); });
  loading.finish();
  RunReport report(invocation, engine, run, progress.step, options.steps);
  train::Loop loop(engine, feed, objective, checkpoints, options, report.sink(),
                   [&] { return wanted_stop(invocation); });
  return report.finish(loop.run(progress));
}

}  // namespace
}  // namespace sf::run

extern "C" int sf_train_sft(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::train_sft(*invocation); });
}
