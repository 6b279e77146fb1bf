// SPDX-License-Identifier: Apache-2.0
#include "run/capture_job.h"

#include <fmt/core.h>

#include <array>
#include <optional>

#include "base/error.h"
#include "ckpt/as_published.h"
#include "ckpt/buffers.h"
#include "ckpt/draft.h"
#include "ckpt/end_ids.h"
#include "config/apply.h"
#include "run/entry.h"
#include "run/import_features.h"
#include "run/loading.h"
#include "run/training.h"
#include "stream/features.h"
#include "tool/capture_wish.h"
#include "tool/chats.h"
#include "tool/target_settings.h"

namespace sf::run {
namespace {

using config::Apply;

// What a target's checkpoint gives beside its weights.
struct Words {
  ckpt::Checkpoint checkpoint;
  text::ChatEncoder encoder;
};

// Applies what opening a whole target applies.
Words open_words(app::Invocation& invocation) {
  config::Settings& settings = invocation.settings();
  apply_threads(invocation, "target.threads", invocation.ranks().local_world);
  ckpt::Checkpoint checkpoint = ckpt::Checkpoint::open(invocation.get("target"));
  text::ChatEncoder encoder = text::ChatEncoder::open(checkpoint.dir());
  const arch::Decoder decoder = arch::decoder_from_config(checkpoint.config());
  Apply(settings, fmt::format("{} layers", decoder.layers), "gen").word("target.compute_dtype");
  tool::apply_host_embedding(settings, decoder);
  return {std::move(checkpoint), std::move(encoder)};
}

void check_files(app::Invocation& invocation, const ckpt::Checkpoint& files, const arch::ModelSpec& spec) {
  ckpt::check_as_published(files);
  ckpt::check_share(files, share_of(invocation));
  ckpt::check_buffers(files, spec);
  for (const arch::Parameter& parameter : spec.parameters)
    SF_CHECK(files.contains(parameter.name) && files.info(parameter.name).shape == parameter.shape, Exit::kData,
             "{}: wanted {} {}, found {}", files.dir().string(), parameter.name, to_string(parameter.shape),
             files.contains(parameter.name) ? to_string(files.info(parameter.name).shape) : "nothing");
}

void open_together(app::Invocation& invocation, CaptureJob& job, const ckpt::Checkpoint& files, gen::Seen seen) {
  const arch::Decoder decoder = arch::decoder_from_config(files.config());
  Loading loading(invocation, *job.group, job.shard.call_deadline_s);
  loading.compare_files({{"target", files.identity()}});
  loading.step("buffers", [&] { check_files(invocation, files, arch::describe(decoder)); });
  SharedTarget target{decoder, job.shard.schedule.compute, std::move(seen), {}};
  target.read = [files](const std::string& parameter, int64_t lo, int64_t hi, std::span<float> to) {
    files.read(parameter, lo, hi, Dtype::kF32, std::as_writable_bytes(to));
  };
  engine::EngineOptions options;
  options.schedule = job.shard.schedule;
  options.call_deadline_s = job.shard.call_deadline_s;
  std::unique_ptr<SharedStates> states;
  loading.step("values", [&] { states = shared_target(*job.group, std::move(target), options); });
  loading.finish();
  job.shared = states.get();
  job.states = std::move(states);
}

}  // namespace

CaptureJob open_capture(app::Invocation& invocation) {
  config::Settings& settings = invocation.settings();
  CaptureJob job{.group = make_group(invocation)};
  ckpt::Checkpoint draft_files = ckpt::Checkpoint::open(invocation.get("draft"));
  tool::CaptureWish wish = tool::capture_wish(draft_files.config());
  const Dtype compute = *dtype_from_config(settings.get_string("target.compute_dtype"));
  job.shard = tool::apply_capture_shard(invocation, job.group->world(), compute);
  if (invocation.has("reuse"))  // before weights are read
    on_first_rank(*job.group, "features to take over", [&] { tool::check_reused(invocation, wish, compute); });
  std::optional<Words> words;
  if (job.shard.together())
    words.emplace(open_words(invocation));
  else
    job.whole = std::make_unique<OpenTarget>(open_host_target(invocation));
  const ckpt::Checkpoint& files = words ? words->checkpoint : job.whole->checkpoint;
  const text::ChatEncoder& encoder = words ? words->encoder : job.whole->encoder;
  ckpt::check_target(draft_files, files);
  const arch::Decoder decoder = arch::decoder_from_config(files.config());
  if (invocation.has("import"))
    job.imported = std::make_unique<tool::OfflineFeatures>(tool::open_import(invocation, wish, decoder));
  tool::Chats chats = job.imported ? tool::chats_of_import(invocation, *job.imported)
                                   : tool::read_chats(invocation, encoder, decoder.max_positions);
  job.contract = tool::contract_of(files, encoder, compute, wish);
  chats.describe(job.contract);
  const Apply carried(settings, fmt::format("{} layers", job.contract.layers.size()), "run");
  job.contract.feature_dtype = stream::feature_type(carried.word("capture.feature_dtype"));
  job.account = tool::account_of(chats.rows, ckpt::end_ids_of(files.dir(), decoder));
  gen::Seen seen = seen_by_teacher(wish, job.contract.feature_dtype, compute);
  if (words) {
    const tool::CaptureLoad load = tool::capture_load(settings, chats, job.contract);
    job.bytes = tool::capture_bytes(decoder, wish, job.shard, load, job.group->rank());
    open_together(invocation, job, files, std::move(seen));
  } else if (job.imported) {
    auto given = [&from = *job.imported, wish](const text::ChatRow& row) { return imported_states(from, wish, row); };
    job.states = given_states(job.whole->model, std::move(seen), given);
  } else {
    job.states = whole_target(job.whole->model, std::move(seen));
  }
  job.capture = std::make_unique<Capture>(*job.states, std::move(wish), job.contract.feature_dtype);
  job.rows = std::move(chats.rows);
  return job;
}

void check_first_rows(app::Invocation& invocation, CaptureJob& job, const Carrier& carrier) {
  const int64_t most = invocation.settings().get_int("capture.selftest_rows");
  Apply(invocation.settings(), fmt::format("the first {} rows", most), "run").whole("capture.selftest_rows");
  app::settle_settings(invocation);
  if (job.group->world() > 1)
    Loading(invocation, *job.group, job.shard.call_deadline_s).compare_files({{"data", job.contract.digest()}});
  invocation.log(job.account.line());
  if (std::string warning = job.account.warning(); !warning.empty() && job.first()) invocation.warn(warning);
  if (most > 0 && job.imported)
    return invocation.log(check_import(*job.imported, job.whole->model, job.capture->wish(), most));
  if (most == 0) return;
  invocation.log(check_capture(*job.capture, job.rows, most, *job.group, carrier).line(job.capture->feature()));
}

void tell_memory(app::Invocation& invocation, const CaptureJob& job, Json* json) {
  if (!job.shared) return;
  const engine::MemoryReport seen = job.shared->engine().measured();
  using Four = std::array<uint64_t, 4>;
  const Four mine{seen.at_rest, job.bytes.at_rest, seen.peak_allocated, job.bytes.peak};
  std::vector<Four> all(static_cast<size_t>(job.group->world()));
  const std::vector<size_t> sizes(all.size(), sizeof mine);
  job.group->all_gather(std::as_bytes(std::span(&mine, 1)), sizes, std::as_writable_bytes(std::span(all)),
                        job.passes().call("memory"));
  Json list = Json::array();
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const Four& one = all[rank];
    auto mib = [&](size_t i) { return static_cast<double>(one.at(i)) / 1048576.0; };
    invocation.log(fmt::format("memory of rank {}, MiB: at rest {:.2f} (plan {:.2f}), peak {:.2f} (plan {:.2f})", rank,
                               mib(0), mib(1), mib(2), mib(3)));
    Json measured = Json::object().set("at_rest_measured", one[0]).set("at_rest_predicted", one[1]);
    list.push(measured.set("peak_measured", one[2]).set("peak_predicted", one[3]));
  }
  if (json) json->set("memory", std::move(list));
}

}  // namespace sf::run
