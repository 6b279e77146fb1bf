// SPDX-License-Identifier: Apache-2.0
// --plan of the training verbs.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>

#include "arch/decoder.h"
#include "base/error.h"
#include "ckpt/checkpoint.h"
#include "config/apply.h"
#include "stream/feature_dir.h"
#include "stream/features.h"
#include "tool/apply_schedule.h"
#include "tool/apply_training.h"
#include "tool/chats.h"
#include "tool/draft_files.h"
#include "tool/grpo_task.h"
#include "tool/held_out.h"
#include "tool/host_places.h"
#include "tool/open_adapter.h"
#include "tool/plan_compute.h"
#include "tool/plan_request.h"
#include "tool/run_dir.h"
#include "tool/sample_source.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUnreadWidth = 2048;  // tokens of a row while the samples are still in a stream: capture's default

struct Data {
  Samples samples;
  std::optional<stream::Contract> contract;  // none: not known
};

// What a directory or a handle file promises; of a pipe, which --plan does not open, the usual row.
Data data_of(app::Invocation& invocation, const DraftFiles& draft) {
  const StreamSettings stream = apply_stream(invocation);
  std::optional<stream::Contract> contract = check_source(invocation, wanted_contract(draft));
  if (contract) {
    Samples samples{contract->max_length, stream::feature_element(contract->feature_dtype), stream.credit_bytes};
    return {samples, std::move(contract)};
  }
  invocation.log(fmt::format("the stream is not opened: rows of {} tokens are assumed", kUnreadWidth));
  return {{kUnreadWidth, Dtype::kBF16, stream.credit_bytes}, std::nullopt};
}

// What only the hosts of the run can tell.
void say_unknown(app::Invocation& invocation, const CommSettings& comm) {
  config::Settings& settings = invocation.settings();
  if (settings.get_string("engine.device") == "cuda")
    invocation.warn(
        "engine.device = \"cuda\": no GPU is looked for here, nor its memory planned; a run that finds none ends with "
        "69");
  if (settings.get_string("engine.kernels") == "plain")
    invocation.warn("engine.kernels = \"plain\": memory is planned for this project's kernels, not for these");
  if (comm.meets && !comm.interface.empty())
    invocation.log(fmt::format("comm.interface = \"{}\" is looked for on the host of each rank", comm.interface));
}

struct RunPlan {
  std::optional<ckpt::Checkpoint> before;    // what the run goes on from
  std::optional<stream::Contract> contract;  // of its data, where known
  std::function<LoopSettings(config::Settings&)> loop = apply_loop;
  bool streamed = false;
  RequestOf request;  // for ranks of a number
};

// The plan of the ranks that run; the threads of a rank are part of what they agree on.
int plan_run(app::Invocation& invocation, const RunPlan& run) {
  apply_device(invocation.settings());
  const RankEnv& ranks = invocation.ranks();
  say_unknown(invocation, apply_comm(invocation.settings(), ranks));
  config::Settings asked = invocation.settings();  // plan_by applies what is read ahead
  const LoopSettings loop = run.loop(asked);
  bool copies = loop.checkpoint_every > 0;
  if (run.contract) {
    const Steps steps = steps_of(loop, run.contract->rows);
    copies = copies && loop.checkpoint_every <= steps.run;
    if (run.streamed) check_window_fits(asked, loop, *run.contract, ranks.world);
    if (std::string line = last_window_line(loop, run.contract->rows); !line.empty()) invocation.log(line);
  }
  if (run.before && run.contract) check_same_run(invocation, run.before->manifest(), *run.contract);
  return plan_by(invocation, ranks.world, [&](config::Settings& settings, int world) {
    PlanRequest request = run.request(settings, world);
    int here = world == ranks.world ? ranks.local_world : world;
    request.options.facts.push_back(fmt::format("threads {}", apply_threads(settings, "engine.threads", here)));
    request.load.ranks_here = here;
    set_limits(request, 0, kUsualBandwidth);
    apply_modes(settings, request);  // leaves room for a copy, which a signal can ask for; so does the run
    request.load.copies = copies;
    apply_engine(settings, request.options);
    return request;
  });
}

}  // namespace

int train_draft_plan(app::Invocation& invocation, std::string_view name) {
  DraftFiles draft = open_draft(invocation);
  const Json& config = draft.files.config();
  const arch::DraftFamily& family = arch::draft_family(config, name);
  if (draft.files.contains("t2d")) ckpt::read_vocab_map(draft.files);
  const Data data = data_of(invocation, draft);
  const uint64_t evaluation = held_out(invocation, draft).bytes;
  return plan_run(invocation, {.before = check_run_dir(invocation),
                               .contract = data.contract,
                               .streamed = data.samples.credit_bytes > 0,
                               .request = [&](config::Settings& settings, int world) {
                                 PlanRequest request =
                                     draft_request(settings, family, config, draft.tied(), data.samples, world);
                                 place_host_tables(request.options, places_of(draft));
                                 request.load.evaluation_bytes = evaluation;
                                 return request;
                               }});
}

int train_sft_plan(app::Invocation& invocation) {
  ckpt::Checkpoint target = ckpt::Checkpoint::open(invocation.get("target"));
  text::ChatEncoder encoder = text::ChatEncoder::open(target.dir());
  arch::Decoder shape = arch::decoder_from_config(target.config());
  Chats chats = read_chats(invocation, encoder, shape.max_positions);
  Samples samples{.width = chats.longest()};
  const std::optional<ckpt::AdapterFiles> adapter = open_trained_adapter(invocation, target);
  const std::vector<arch::Adapter> adapters = adapters_in(adapter);
  config::Settings& settings = invocation.settings();
  const bool narrow = apply_adapter_dtype(settings, 2 * adapters.size());
  const std::optional<ckpt::Checkpoint> before = check_run_dir(invocation);
  if (before) check_same_adapter(*before, adapter, narrow ? "bf16" : "fp32");
  const Dtype compute = *dtype_from_config(settings.get_string("engine.compute_dtype"));
  const stream::Contract contract = sft_contract(target, encoder, shape, chats, compute);
  return plan_run(invocation,
                  {.before = before, .contract = contract, .request = [&](config::Settings& asked, int world) {
                     PlanRequest request = sft_request(asked, shape, adapters, samples, world);
                     place_host_tables(request.options, places_in(target));
                     return request;
                   }});
}

int train_grpo_plan(app::Invocation& invocation) {
  config::Settings& settings = invocation.settings();
  const GrpoTask task = open_grpo(invocation);
  const bool narrow = apply_adapter_dtype(settings, 2 * task.adapter.adapters().size());
  const std::optional<ckpt::Checkpoint> before = check_run_dir(invocation);
  if (before) check_same_adapter(*before, task.adapter, narrow ? "bf16" : "fp32");
  for (const std::string& key : settings.unapplied())
    if (key.starts_with("generate.") || key == "target.compute_dtype")
      settings.applied(key, settings.shown(key), "the run alone", "tool");
  return plan_run(invocation,
                  {.before = before,
                   .contract = task.contract,
                   .loop = [&](config::Settings& asked) { return apply_prompt_loop(asked, task.settings.prompts); },
                   .request =
                       [&](config::Settings& asked, int world) {
                         PlanRequest request = grpo_request(asked, task, world);
                         place_host_tables(request.options, places_in(task.target));
                         return request;
                       }});
}

}  // namespace sf::tool
