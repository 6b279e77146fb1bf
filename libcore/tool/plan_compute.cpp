// SPDX-License-Identifier: Apache-2.0
// --plan of the verbs that run a target.
#include "tool/plan_compute.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "arch/decoder.h"
#include "arch/drafts.h"
#include "base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/draft.h"
#include "ckpt/end_ids.h"
#include "config/apply.h"
#include "stream/feature_dir.h"
#include "stream/features.h"
#include "text/chat.h"
#include "tool/answer_rows.h"
#include "tool/apply_schedule.h"
#include "tool/apply_training.h"
#include "tool/capture_shard.h"
#include "tool/capture_wish.h"
#include "tool/chats.h"
#include "tool/exam.h"
#include "tool/facts.h"
#include "tool/memory_limit.h"
#include "tool/offline_features.h"
#include "tool/open_adapter.h"
#include "tool/outputs.h"
#include "tool/prompts.h"
#include "tool/synthetic.h"
#include "tool/target_settings.h"
#include "tool/text_account.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;
using config::Apply;

// A decoder in the type it computes in: bytes of its weights, and of one token's keys and values.
struct TargetBytes {
  arch::Decoder shape;
  Dtype compute = Dtype::kF32;
  uint64_t weights = 0, cache_token = 0;
  int64_t parameters = 0;
};

TargetBytes target_bytes(app::Invocation& invocation, const ckpt::Checkpoint& target) {
  apply_threads(invocation.settings(), "target.threads", invocation.ranks().local_world);
  TargetBytes bytes{.shape = arch::decoder_from_config(target.config())};
  bytes.compute = *dtype_from_config(Apply(invocation.settings(), "every layer", "gen").word("target.compute_dtype"));
  bytes.parameters = arch::describe(bytes.shape).parameter_count();
  bytes.weights = static_cast<uint64_t>(bytes.parameters) * size_of(bytes.compute);
  bytes.cache_token = static_cast<uint64_t>(2 * bytes.shape.layers * bytes.shape.kv_heads * bytes.shape.head_dim) *
                      size_of(bytes.compute);
  return bytes;
}

void print_record(app::Invocation& invocation, const Json& record) {
  if (invocation.json_output()) return invocation.result(record.dump());
  for (const auto& [key, value] : record.as_object())
    invocation.result(fmt::format("{:<18} {}", key, value.is_string() ? value.as_string() : value.dump()));
}

// Whether the draft judges its own proposals: its confidence head is among its parameters.
bool judges(const ckpt::Checkpoint& draft) {
  const arch::ModelSpec spec = arch::draft_family(draft.config()).describe(draft.config());
  return std::ranges::any_of(
      spec.parameters, [](const arch::Parameter& parameter) { return parameter.name.starts_with("confidence_head."); });
}

void check_fits(const app::Invocation& invocation, uint64_t weights, uint64_t cache, std::string_view advice) {
  MemoryLimit limit = memory_limit(invocation.ranks().local_world);
  SF_CHECK(limit.bytes == 0 || weights + cache <= limit.bytes, Exit::kConfig,
           "does not fit: {} bytes of weights and {} of keys and values, {} may be used ({}): {} bytes too many; {}",
           weights, cache, limit.bytes, limit.origin, weights + cache - limit.bytes, advice);
}

// Free where `path` would be written: at the nearest folder that exists.
uint64_t free_disk(const fs::path& path) {
  fs::path at = fs::absolute(path);
  std::error_code ignored;
  while (!fs::exists(at, ignored) && at.has_parent_path() && at != at.parent_path()) at = at.parent_path();
  fs::space_info space = fs::space(at, ignored);
  return ignored ? 0 : space.available;
}

struct Answers {
  TargetBytes target;
  uint64_t cache_bytes = 0;
  Json record;
};

using Ids = std::vector<std::vector<int32_t>>;

// Each of `prompts` is answered `samples` times.
Answers count_answers(const AnswerSettings& asked, const TargetBytes& target, const Ids& prompts, int64_t samples) {
  Answers answers{.target = target};
  int64_t positions = answers.target.shape.max_positions, longest = 0;
  for (const std::vector<int32_t>& ids : prompts) longest = std::max(longest, std::ssize(ids));
  int64_t most = asked.max_new_tokens, count = std::ssize(prompts) * samples,
          length = std::min(longest + most, positions);
  const int64_t caches = std::min(asked.batch, count) + (samples > 1);  // and what answers to one prompt begin with
  answers.cache_bytes = static_cast<uint64_t>(caches * length) * answers.target.cache_token;
  answers.record = Json::object()
                       .set("parameters", answers.target.parameters)
                       .set("prompts", std::ssize(prompts))
                       .set("longest_prompt", longest)
                       .set("tokens_at_most", count * std::min(most, positions))
                       .set("weight_bytes", answers.target.weights)
                       .set("cache_bytes", answers.cache_bytes);
  return answers;
}

// What --prompts ask of --target; `into_file`: as chats, into an output that the run would not refuse.
Answers count_answers(app::Invocation& invocation, bool into_file) {
  ckpt::Checkpoint target = ckpt::Checkpoint::open(invocation.get("target"));
  const TargetBytes bytes = target_bytes(invocation, target);
  const text::ChatEncoder encoder = text::ChatEncoder::open(target.dir());
  const AnswerSettings asked = apply_answers(invocation.settings(), target, bytes.shape, encoder.tokenizer());
  Prompts prompts = read_prompts(invocation, encoder, bytes.shape.max_positions);
  if (into_file) {
    std::vector<std::string> keys;
    for (const text::Prompt& prompt : prompts.prompts) keys.push_back(prompt.id);
    check_answers_output(invocation.get("output"), chat_job(target, encoder, asked, bytes.compute), &keys);
  }
  return count_answers(asked, bytes, prompts.ids, 1);
}

int show_answers(app::Invocation& invocation, const Answers& answers) {
  app::settle_settings(invocation);
  print_record(invocation, answers.record);
  check_fits(invocation, answers.target.weights, answers.cache_bytes,
             "a smaller generate.batch or generate.max_new_tokens, or target.compute_dtype=bf16, needs less");
  return 0;
}

}  // namespace

int capture_features_plan(app::Invocation& invocation) {
  if (invocation.has("synthetic")) return synthetic_features(invocation);
  const RankEnv& ranks = invocation.ranks();
  apply_comm(invocation.settings(), ranks);
  SF_CHECK(!invocation.has("n"), Exit::kUsage, "--n counts rows of --synthetic; give both");
  if (invocation.has("output")) refuse_existing(invocation.get("output"));
  ckpt::Checkpoint draft = ckpt::Checkpoint::open(invocation.get("draft"));
  CaptureWish wish = capture_wish(draft.config());
  ckpt::Checkpoint target = ckpt::Checkpoint::open(invocation.get("target"));
  ckpt::check_target(draft, target);
  text::ChatEncoder encoder = text::ChatEncoder::open(target.dir());
  TargetBytes bytes = target_bytes(invocation, target);
  const CaptureShard shard = apply_capture_shard(invocation, ranks.world, bytes.compute);
  apply_host_embedding(invocation.settings(), bytes.shape);
  Chats chats = invocation.has("import") ? chats_of_import(invocation, open_import(invocation, wish, bytes.shape))
                                         : read_chats(invocation, encoder, bytes.shape.max_positions);
  if (!invocation.has("import")) rejected_file(invocation);
  stream::Contract contract = contract_of(target, encoder, bytes.compute, wish);
  chats.describe(contract);
  contract.feature_dtype =
      stream::feature_type(Apply(invocation.settings(), "every sample", "run").word("capture.feature_dtype"));
  const TextAccount account = account_of(chats.rows, ckpt::end_ids_of(target.dir(), bytes.shape));
  const int64_t tokens = account.tokens, longest = chats.longest();
  const uint64_t scale = contract.feature_dtype == stream::kFloat8 ? sizeof(float) : 0;
  uint64_t state = static_cast<uint64_t>(bytes.shape.hidden) * size_of(stream::feature_element(contract.feature_dtype));
  uint64_t ids = wish.teacher ? 13 : 5;
  state += scale;
  uint64_t features = static_cast<uint64_t>(tokens) * (wish.names.size() * state + ids);
  uint64_t cache = static_cast<uint64_t>(longest) * bytes.cache_token;
  if (invocation.has("output")) stream::check_features_begun(invocation.get("output"), contract);
  open_reused(invocation, contract);
  if (invocation.has("handle-file")) refuse_all_but_handle(invocation.get("handle-file"));
  if (invocation.has("output"))
    apply_no_stream(invocation.settings());
  else
    apply_producer(invocation.settings(), invocation.has("handle-file"));
  const CaptureBytes held = shard.together() ? capture_bytes(bytes.shape, wish, shard,
                                                             capture_load(invocation.settings(), chats, contract), 0)
                                             : CaptureBytes{bytes.weights, bytes.weights + cache};
  app::settle_settings(invocation);
  print_record(invocation, Json::object()
                               .set("parameters", bytes.parameters)
                               .set("ranks", int64_t{ranks.world})
                               .set("rank_bytes_at_rest", held.at_rest)
                               .set("rank_bytes_peak", held.peak)
                               .set("rows", std::ssize(chats.rows))
                               .set("void_rows", account.rejected)
                               .set("tokens", tokens)
                               .set("longest_row", longest)
                               .set("weight_bytes", bytes.weights)
                               .set("cache_bytes", cache)
                               .set("feature_bytes", features)
                               .set("disk_bytes", invocation.has("output") ? features : uint64_t{0})
                               .set("text", account.to_json())
                               .set("contract", contract.to_json()));
  check_fits(invocation, held.at_rest, held.peak - held.at_rest,
             "more ranks that hold the target together (shard.backend), a smaller capture.max_length, or "
             "target.compute_dtype=bf16, needs less");
  if (!invocation.has("output")) return 0;
  uint64_t room = free_disk(invocation.get("output"));
  SF_CHECK(
      features <= room, Exit::kConfig,
      "does not fit: {} bytes of features, {} free for {}: {} bytes too many; capture.feature_dtype=bf16 or fp8, or "
      "a stream, needs less",
      features, room, invocation.get("output"), features - room);
  return 0;
}

int answers_plan(app::Invocation& invocation) {
  refuse_existing(invocation.get("output"));
  require_place_for(invocation.get("output"));
  apply_comm(invocation.settings(), invocation.ranks());
  Answers answers = count_answers(invocation, true);
  answers.record.set("ranks", int64_t{invocation.ranks().world});
  return show_answers(invocation, answers);
}

namespace {

// What the run would refuse of --adapter, --draft and -o.
void check_generate(app::Invocation& invocation, const Exam& exam, const ckpt::Checkpoint& target) {
  const std::optional<ckpt::AdapterFiles> adapter = open_adapter(invocation, target, adapter_option(invocation));
  Json facts = facts_of(exam, target, {}, adapter ? &adapter->files() : nullptr);
  if (invocation.has("draft")) {
    const ckpt::Checkpoint draft = ckpt::Checkpoint::open(invocation.get("draft"));
    ckpt::check_target(draft, target);
    add_draft_facts(facts, draft, proposals_of(invocation.settings(), arch::draft_family(draft.config())),
                    invocation.settings());
    apply_least_confidence(invocation.settings(), judges(draft));
  } else {
    apply_no_draft(invocation.settings());
  }
  if (invocation.has("output")) check_answers_output(invocation.get("output"), job_of(facts, exam));
}

}  // namespace

int generate_plan(app::Invocation& invocation) {
  apply_comm(invocation.settings(), invocation.ranks());
  ckpt::Checkpoint target = ckpt::Checkpoint::open(invocation.get("target"));
  const TargetBytes bytes = target_bytes(invocation, target);
  const Exam exam = read_exam(invocation, false);
  check_generate(invocation, exam, target);
  const text::ChatEncoder encoder = text::ChatEncoder::open(target.dir(), exam.variables);
  const AnswerSettings asked = apply_answers(invocation.settings(), target, bytes.shape, encoder.tokenizer());
  const Ids ids = encode(invocation.settings(), exam, encoder, bytes.shape.max_positions);
  Answers answers = count_answers(asked, bytes, ids, exam.samples);
  answers.record.set("answers", std::ssize(ids) * exam.samples).set("ranks", int64_t{invocation.ranks().world});
  return show_answers(invocation, answers);
}

arch::Proposals proposals_of(config::Settings& settings, const arch::DraftFamily& family) {
  const Apply each(settings, "each verification", "gen");
  arch::Proposals out{.depth = each.whole("speculation.draft_tokens"), .nodes = each.whole("speculation.tree_nodes")};
  if (!out.branch()) {
    Apply(settings, "0 levels (speculation.tree_nodes = 0: a chain)", "gen").nothing("speculation.tree_width");
    return out;
  }
  SF_CHECK(
      family.branches(), Exit::kConfig,
      "speculation.tree_nodes = {} wants a draft whose proposals branch ({}), found a {} draft; 0 asks for a chain",
      out.nodes, arch::draft_names(true), family.name);
  out.width = each.whole("speculation.tree_width");
  return out;
}

int accept_plan(app::Invocation& invocation) {
  ckpt::Checkpoint draft = ckpt::Checkpoint::open(invocation.get("draft"));
  const arch::DraftFamily& family = arch::draft_family(draft.config());
  ckpt::check_target(draft, ckpt::Checkpoint::open(invocation.get("target")));
  Answers answers = count_answers(invocation, false);
  int64_t parameters = family.describe(draft.config()).parameter_count();
  const arch::Proposals proposals = proposals_of(invocation.settings(), family);
  apply_least_confidence(invocation.settings(), judges(draft));
  answers.record.set("draft_parameters", parameters).set("draft_tokens", proposals.depth);
  if (proposals.branch()) answers.record.set("tree_nodes", proposals.nodes).set("tree_width", proposals.width);
  answers.target.weights += static_cast<uint64_t>(parameters) * size_of(answers.target.compute);
  return show_answers(invocation, answers);
}

}  // namespace sf::tool
