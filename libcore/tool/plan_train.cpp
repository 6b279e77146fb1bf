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
#include "tool/capture_wish.h"
#include "tool/chats.h"
#include "tool/draft_files.h"
#include "tool/plan_compute.h"
#include "tool/plan_request.h"
#include "tool/run_dir.h"
#include "tool/sample_source.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUnreadWidth = 2048;  // tokens of a row while the samples are still in a stream: capture's default

// Of a directory what it holds; of a stream, which --plan does not open, the usual row.
Samples samples_of(app::Invocation& invocation, const DraftFiles& draft, int64_t vocab, int64_t hidden) {
  CaptureWish wish = capture_wish(draft.files.config());
  check_source(invocation, {.algorithm = wish.algorithm,
                            .target = draft.target.identity(),
                            .tokenizer = draft.link.tokenizer,
                            .chat_template = draft.link.chat_template,
                            .layers = wish.names,
                            .vocab = vocab,
                            .hidden = hidden});
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

int train_eagle3_plan(app::Invocation& invocation) {
  DraftFiles draft = open_draft(invocation);
  ckpt::read_vocab_map(draft.files);
  arch::Eagle3 shape = arch::eagle3_from_config(draft.files.config());
  Samples samples = samples_of(invocation, draft, shape.vocab, shape.target_hidden);
  return plan_run(invocation, [&](config::Settings& settings, int world) {
    return eagle3_request(settings, shape, samples, world);
  });
}

int train_dflash_plan(app::Invocation& invocation) {
  DraftFiles draft = open_draft(invocation);
  arch::Dflash shape = arch::dflash_from_config(draft.files.config());
  arch::check_trainable(shape);
  Samples samples = samples_of(invocation, draft, shape.vocab, shape.hidden);
  return plan_run(invocation, [&](config::Settings& settings, int world) {
    return dflash_request(settings, shape, draft.tied(), samples, world);
  });
}

int train_sft_plan(app::Invocation& invocation) {
  ckpt::Checkpoint target = ckpt::Checkpoint::open(invocation.get("target"));
  text::ChatEncoder encoder = text::ChatEncoder::open(target.dir());
  arch::Decoder shape = arch::decoder_from_config(target.config());
  Chats chats = read_chats(invocation, encoder, shape.max_positions);
  Samples samples{.width = chats.longest()};
  return plan_run(invocation,
                  [&](config::Settings& settings, int world) { return sft_request(settings, shape, samples, world); });
}

}  // namespace sf::tool
