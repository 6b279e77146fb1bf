// SPDX-License-Identifier: Apache-2.0
// --plan of the training verbs.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "arch/decoder.h"
#include "base/error.h"
#include "ckpt/checkpoint.h"
#include "config/apply.h"
#include "stream/feature_dir.h"
#include "tool/apply_schedule.h"
#include "tool/chats.h"
#include "tool/draft_files.h"
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

// Of a directory what it holds; of a stream, which --plan does not open, the usual row.
Samples samples_of(app::Invocation& invocation, const DraftFiles& draft) {
  check_source(invocation, wanted_contract(draft));
  std::string from = invocation.get("from");
  if (from != "-" && fs::is_directory(from)) {
    std::optional<stream::Contract> contract = stream::published_contract(from);
    SF_CHECK(contract, Exit::kNoInput, "{} holds no features", from);
    return {contract->max_length, *dtype_from_name(contract->feature_dtype), 0};
  }
  invocation.log(fmt::format("the stream is not opened: rows of {} tokens are assumed", kUnreadWidth));
  auto credit = static_cast<uint64_t>(invocation.settings().get_int("stream.credit_mib"));
  return {kUnreadWidth, Dtype::kBF16, credit << 20};
}

// `request_of` for the ranks that run; the threads of a rank are part of what they agree on.
int plan_run(app::Invocation& invocation, const RequestOf& request_of) {
  check_run_dir(invocation);
  const RankEnv& ranks = invocation.ranks();
  return plan_by(invocation, ranks.world, [&](config::Settings& settings, int world) {
    PlanRequest request = request_of(settings, world);
    int here = world == ranks.world ? ranks.local_world : world;
    request.options.facts.push_back(fmt::format("threads {}", apply_threads(settings, "engine.threads", here)));
    request.load.ranks_here = here;
    set_limits(request, "", kUsualBandwidth);
    apply_modes(settings, request);
    // A learning rate changes no byte: what is left belongs to the run.
    for (const std::string& key : settings.unapplied())
      settings.applied(key, settings.shown(key), "the run alone", "tool");
    return request;
  });
}

}  // namespace

int train_draft_plan(app::Invocation& invocation, std::string_view name) {
  DraftFiles draft = open_draft(invocation);
  const Json& config = draft.files.config();
  const arch::DraftFamily& family = arch::draft_family(config, name);
  if (draft.files.contains("t2d")) ckpt::read_vocab_map(draft.files);
  Samples samples = samples_of(invocation, draft);
  return plan_run(invocation, [&](config::Settings& settings, int world) {
    PlanRequest request = draft_request(settings, family, config, draft.tied(), samples, world);
    place_host_tables(request.options, places_of(draft));
    return request;
  });
}

int train_sft_plan(app::Invocation& invocation) {
  ckpt::Checkpoint target = ckpt::Checkpoint::open(invocation.get("target"));
  text::ChatEncoder encoder = text::ChatEncoder::open(target.dir());
  arch::Decoder shape = arch::decoder_from_config(target.config());
  Chats chats = read_chats(invocation, encoder, shape.max_positions);
  Samples samples{.width = chats.longest()};
  std::vector<arch::Adapter> adapters = adapters_in(open_adapter(invocation, target, adapter_option(invocation)));
  return plan_run(invocation, [&](config::Settings& settings, int world) {
    PlanRequest request = sft_request(settings, shape, adapters, samples, world);
    place_host_tables(request.options, places_in(target));
    return request;
  });
}

}  // namespace sf::tool
