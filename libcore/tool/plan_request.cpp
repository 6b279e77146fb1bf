// SPDX-License-Identifier: Apache-2.0
#include "tool/plan_request.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "arch/config_keys.h"
#include "arch/eagle3.h"
#include "arch/peagle.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "config/apply.h"
#include "plan/choose.h"
#include "plan/work.h"
#include "stream/features.h"
#include "tool/apply_schedule.h"
#include "tool/apply_training.h"
#include "tool/draft_settings.h"
#include "tool/grpo_task.h"
#include "tool/init_blocks.h"
#include "tool/init_draft.h"
#include "tool/init_lora.h"
#include "tool/memory_limit.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostConfigBytes = size_t{1} << 20;
constexpr int64_t kBlockLayers = 5;  // of a draft that only its target describes

uint64_t tensor_bytes(int64_t elements, Dtype type) {
  return plan::aligned_bytes(elements, type);
}

// Of shapes that were typed: a slip would become a default.
void refuse_unread(const Json& shapes, const std::string& key) {
  const std::optional<std::string> unread = arch::unread_key(shapes);
  if (!unread || fault("tool.any_shape")) return;
  const std::vector<std::string> known(arch::config_keys().begin(), arch::config_keys().end());
  const std::string near = config::nearest(*unread, known);
  fail(Exit::kConfig, "{}: {} is nothing that shapes are read from{}; leave it out, or give the path of a config.json",
       key, *unread, near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
}

// The JSON object of plan.target or plan.draft: a table, or the path of config.json or of its directory. Null if not
// given.
Json config_of(config::Settings& settings, const std::string& key) {
  const Json& value = settings.get_table(key);
  if (value.is_object()) {
    refuse_unread(value, key);
    settings.applied(key, "{...}", "shapes", "tool");
    return value;
  }
  settings.applied(key, value.as_string(), value.as_string().empty() ? "nothing" : "shapes", "tool");
  if (value.as_string().empty()) return {};
  fs::path path = value.as_string();
  if (fs::is_directory(path)) path /= "config.json";
  return Json::parse(read_file(path, kMostConfigBytes), path.string());
}

// What every algorithm has in common.
PlanRequest request_of(config::Settings& settings, std::string algorithm, arch::ModelSpec spec, int64_t width,
                       int world) {
  PlanRequest request;
  request.algorithm = std::move(algorithm);
  request.options = apply_schedule(settings, spec, world);
  request.spec = std::move(spec);
  request.width = width;
  const LoopSettings loop = apply_loop(settings);
  request.rows = loop.rows;
  request.load.micro_batches = loop.micro_batches;
  request.load.checkpoints = loop.keep_checkpoints;
  return request;
}

// Samples of this rank's two windows (the next is asked for while one is computed), bounded by the credit; from files
// those of one micro-batch.
uint64_t under_way(const PlanRequest& request, const Samples& samples, uint64_t sample_bytes) {
  if (samples.credit_bytes == 0) return static_cast<uint64_t>(request.rows) * sample_bytes;
  auto mine = static_cast<uint64_t>(2 * request.rows * plan::rounds(request.load.micro_batches, request.options.world));
  return std::min(samples.credit_bytes, mine * sample_bytes);
}

bool on_host(const plan::ScheduleOptions& options, const std::string& parameter) {
  auto found = options.tables.find(parameter);
  return found != options.tables.end() && found->second == plan::Residency::kHost;
}

// A whole target beside the shards, its tied table once more as a packed head, and keys and values of what it decodes
// at once.
uint64_t sampler_bytes(const config::Settings& settings, const GrpoShapes& task, const plan::ScheduleOptions& options,
                       Dtype compute) {
  const arch::Decoder& model = task.decoder;
  uint64_t bytes = 0;
  for (const arch::Parameter& parameter : arch::describe(model).parameters)
    if (!on_host(options, parameter.name)) bytes += tensor_bytes(numel(parameter.shape), compute);
  if (model.tied) bytes += tensor_bytes(model.vocab * model.hidden, compute);
  constexpr int64_t kGrain = 256;  // of a cache's capacity
  const int64_t capacity = (task.longest + kGrain - 1) / kGrain * kGrain;
  const int64_t cache = 2 * model.layers * model.kv_heads * capacity * model.head_dim;
  // One more: what the responses to one prompt begin with.
  return bytes + static_cast<uint64_t>(settings.get_int("generate.batch") + 1) * tensor_bytes(cache, compute);
}

// What a family adds to the plan of its draft.
struct Full {
  config::Settings& settings;
  const Json& config;
  PlanRequest& request;

  int64_t tokens() const { return request.rows * request.width; }
  void vocabulary_map(int64_t vocab, int64_t draft_vocab) const {
    request.load.constant_bytes = tensor_bytes(vocab, Dtype::kBool) + tensor_bytes(draft_vocab, Dtype::kI64);
  }
};

void eagle3(const Full& full) {
  arch::Eagle3 draft = arch::eagle3_from_config(full.config);
  PlanRequest& request = full.request;
  const Eagle3Settings wanted = apply_eagle3(full.settings);
  request.lookups = full.tokens() * wanted.unroll;
  full.vocabulary_map(draft.vocab, draft.draft_vocab);
  plan::Eagle3Steps steps{wanted.unroll, wanted.asks_cross_entropy(), wanted.asks_lk()};
  request.work = [=, compute = request.options.compute,
                  batch = plan::full_eagle3_batch(request.rows, request.width, wanted.unroll, wanted.reference_quirks)](
                     const plan::Schedule&) { return plan::eagle3_work(draft, steps, compute, batch); };
}

// Every index supervised: the rows of a depth are then those of the depth before that have a token, or what is drawn.
void peagle(const Full& full) {
  arch::Peagle draft = arch::peagle_from_config(full.config);
  PlanRequest& request = full.request;
  const PeagleSettings wanted = apply_peagle(full.settings);
  const int64_t depths = wanted.depths;
  std::vector<double> shares;
  for (int64_t depth = 1; depth < depths; ++depth)
    shares.push_back(std::max(std::pow(wanted.ratio, static_cast<double>(depth)), wanted.least));
  plan::PeagleBatch batch = plan::full_peagle_batch(request.rows, request.width, shares);
  request.lookups = batch.all();
  request.load.input_bytes += 2 * tensor_bytes(batch.all() - batch.first(), Dtype::kI64);
  full.vocabulary_map(draft.vocab, draft.draft_vocab);
  request.load.constant_bytes += plan::rotary_bytes(draft.head_dim, request.width + depths);
  request.work = [draft, batch, spec = request.spec](const plan::Schedule& schedule) {
    return plan::peagle_work(draft, spec, schedule, batch);
  };
}

// What a draft of blocks holds in a round, and whether its first slot has a label.
struct BlockWork {
  std::function<uint64_t(const plan::BlockRun&)> bytes;
  bool next = false;
};

BlockWork dflash_work(const Full& full) {
  return {[draft = arch::dflash_from_config(full.config)](const auto& run) { return plan::dflash_work(draft, run); }};
}

BlockWork dflash2_work(const Full& full) {
  return {[draft = arch::dflash2_from_config(full.config), alone = apply_selector(full.settings).stop_gradient](
              const auto& run) { return plan::dflash2_work(draft, run, alone); }};
}

BlockWork dspark_work(const Full& full) {
  arch::Dspark draft = arch::dspark_from_config(full.config);
  const DsparkSettings terms = apply_dspark(full.settings, draft);
  bool sure = terms.confidence_alpha != 0, teacher = terms.l1_alpha != 0 || sure;
  return {[=](const auto& run) { return plan::dspark_work(draft, run, {teacher, sure}); }, true};
}

BlockWork domino_work(const Full& full) {
  arch::Domino draft = arch::domino_from_config(full.config);
  return {[draft](const auto& run) { return plan::domino_work(draft, run); }, draft.shift_label};
}

// A family without a line in one of these is planned without its activations.
constexpr std::pair<std::string_view, void (*)(const Full&)> kVocabularyWork[] = {{"eagle3", eagle3},
                                                                                  {"peagle", peagle}};
constexpr std::pair<std::string_view, BlockWork (*)(const Full&)> kBlockWork[] = {
    {"dflash", dflash_work}, {"dflash2", dflash2_work}, {"dspark", dspark_work}, {"domino", domino_work}};

void blocks(const Full& full, const arch::Dflash& draft) {
  PlanRequest& request = full.request;
  const int64_t anchors = apply_blocks(full.settings).anchors;
  int64_t slots = request.rows * anchors * draft.block;
  request.lookups = slots;
  request.load.input_bytes +=
      tensor_bytes(request.rows * anchors, Dtype::kI64) + tensor_bytes(draft.block, Dtype::kF32);
  request.load.constant_bytes = plan::rotary_bytes(draft.head_dim, request.width + draft.block);
  for (const auto& [name, read] : kBlockWork) {
    if (name != request.algorithm) continue;
    BlockWork work = read(full);
    request.work = [bytes = work.bytes, spec = request.spec,
                    batch = plan::full_dflash_batch(draft, request.rows, request.width, {anchors, work.next})](
                       const plan::Schedule& schedule) {
      return bytes({spec, schedule, batch});
    };
  }
}

// What [draft] says of shapes that are known otherwise.
void set_aside_draft(config::Settings& settings, std::string_view why) {
  const config::Apply without(settings, fmt::format("0 shapes of a draft ({})", why), "tool");
  for (const std::string& key : settings.given_keys())
    if (key.starts_with("draft.")) without.nothing(key);
}

// A new draft of the target, as plan.algorithm and [draft] say.
Json new_draft(config::Settings& settings, const std::string& algorithm, const arch::Decoder& target) {
  config::Apply shapes(settings, "the shapes", "tool");
  if (!arch::draft_family_named(algorithm).blocks) {
    const int64_t asked = shapes.whole("draft.vocab_size"), words = asked > 0 ? asked : target.vocab;
    const int64_t layers = has_layers(algorithm) ? shapes.whole("draft.hidden_layers") : 0;
    return vocabulary_shapes(algorithm, target, words, layers);
  }
  int64_t layers = shapes.whole("draft.hidden_layers");
  arch::Dflash own = arch::dflash_for_target(target, layers > 0 ? layers : kBlockLayers);
  own.block = shapes.whole("draft.block_size");
  own.mask_token = 0;  // of no weight here
  return block_kind(algorithm)->read(settings)(own);
}

}  // namespace

Samples apply_samples(config::Settings& settings, bool features) {
  config::Apply rows(settings, "every row", "tool");
  Samples samples;
  samples.width = rows.whole("capture.max_length");
  if (!features) {
    config::Apply without(settings, "0 features (chats are read)", "tool");
    for (const char* key : {"capture.feature_dtype", "stream.credit_mib"}) without.nothing(key);
    return samples;
  }
  samples.type = stream::feature_element(stream::feature_type(rows.word("capture.feature_dtype")));
  samples.credit_bytes = static_cast<uint64_t>(rows.whole("stream.credit_mib")) << 20;
  return samples;
}

PlanRequest draft_request(config::Settings& settings, const arch::DraftFamily& family, const Json& config, bool tied,
                          const Samples& samples, int world) {
  PlanRequest request =
      request_of(settings, std::string(family.name), family.describe_training(config, tied), samples.width, world);
  arch::DraftInput input = family.input(config);
  int64_t tokens = request.rows * request.width, captured = std::ssize(input.layers) * input.hidden;
  int64_t normed = family.final_norm() ? input.hidden : 0;
  Dtype compute = request.options.compute;
  uint64_t& bytes = request.load.input_bytes;
  bytes = 2 * tensor_bytes(tokens, Dtype::kI64) + tensor_bytes(request.rows, Dtype::kI64);
  bytes += tensor_bytes(tokens * captured, compute) + tensor_bytes(tokens * normed, compute);
  if (family.teacher()) bytes += tensor_bytes(tokens, Dtype::kI64) + tensor_bytes(tokens, Dtype::kF32);
  // An id, its mask, and a teacher's id and log-sum-exp.
  uint64_t token = static_cast<uint64_t>(captured + normed) * size_of(samples.type) + (family.teacher() ? 13 : 5);
  request.load.sample_bytes = under_way(request, samples, static_cast<uint64_t>(request.width) * token);
  apply_algorithm(settings, family.name, config);
  Full full{settings, config, request};
  if (family.blocks) blocks(full, family.blocks(config));
  for (const auto& [name, plan] : kVocabularyWork)
    if (name == family.name) plan(full);
  return request;
}

namespace {

// Activations of training the target itself, where they are known.
void set_target_work(PlanRequest& request, const arch::Decoder& model, const std::vector<arch::Adapter>& adapters) {
  if (!plan::knows_work(model)) return;
  request.work = [model, adapters, spec = request.spec, batch = plan::full_sft_batch(request.rows, request.width)](
                     const plan::Schedule& schedule) { return plan::sft_work(model, spec, schedule, batch, adapters); };
}

// What a run of [planned] divides a sampler's bytes by.
uint64_t apply_planned(config::Settings& settings, int world) {
  const config::Apply sampler(settings, "the sampler (planned: no run does it yet)", "tool");
  for (const char* key : {"planned.device_graphs", "planned.sampler_draft", "planned.sampler_draft_tokens"})
    if (settings.given(key))
      settings.applied(key, settings.shown(key), "the sampler (planned: no run does it yet)", "tool");
  const int64_t ranks = settings.given("planned.sampler_ranks") ? sampler.whole("planned.sampler_ranks") : 1;
  SF_CHECK(world % ranks == 0, Exit::kConfig, "planned.sampler_ranks = {} ({}) does not divide {} ranks", ranks,
           settings.origin("planned.sampler_ranks"), world);
  return static_cast<uint64_t>(ranks);
}

}  // namespace

PlanRequest sft_request(config::Settings& settings, const arch::Decoder& model,
                        const std::vector<arch::Adapter>& adapters, const Samples& samples, int world) {
  PlanRequest request = request_of(settings, "sft", arch::describe_training(model, adapters), samples.width, world);
  apply_algorithm(settings, "sft", {});
  apply_adapter_dtype(settings, 2 * adapters.size());
  request.load.input_bytes = 3 * tensor_bytes(request.rows * request.width, Dtype::kI64) + plan::kAlign;
  request.load.constant_bytes = plan::rotary_bytes(model.rotary_dims(), request.width);
  set_target_work(request, model, adapters);
  return request;
}

PlanRequest grpo_request(config::Settings& settings, const GrpoShapes& task, int world) {
  const arch::Decoder& model = task.decoder;
  const std::vector<arch::Adapter>& adapters = task.adapters;
  PlanRequest request;
  request.algorithm = "grpo";
  request.spec = arch::describe_training(model, adapters);
  request.options = apply_schedule(settings, request.spec, world);
  request.width = task.longest;
  request.rows = std::min(task.settings.token_budget / task.longest, task.settings.prompts * task.settings.responses);
  const LoopSettings loop = apply_prompt_loop(settings, task.settings.prompts);
  request.load.micro_batches =
      (task.settings.prompts * task.settings.responses + request.rows - 1) / std::max<int64_t>(request.rows, 1);
  request.load.checkpoints = loop.keep_checkpoints;
  apply_algorithm(settings, "grpo", {});
  apply_adapter_dtype(settings, 2 * adapters.size());
  request.load.input_bytes = 7 * tensor_bytes(request.rows * request.width, Dtype::kI64) + plan::kAlign;
  const Dtype compute = *dtype_from_config(settings.get_string("target.compute_dtype"));
  request.load.constant_bytes = plan::rotary_bytes(model.rotary_dims(), request.width);
  request.load.sampler_bytes = sampler_bytes(settings, task, request.options, compute) / apply_planned(settings, world);
  set_target_work(request, model, adapters);
  return request;
}

PlanRequest grpo_request(config::Settings& settings, const GrpoTask& task, int world) {
  return grpo_request(settings, {task.decoder, task.adapter.adapters(), task.settings, task.longest}, world);
}

PlanRequest grpo_request(config::Settings& settings, const arch::Decoder& target, int world) {
  arch::Lora lora = apply_lora(settings);
  const std::vector<arch::Adapter> adapters = new_adapters(lora, arch::describe(target));
  const config::Apply sampler(settings, "every answer", "gen");
  GrpoShapes task{target, adapters, apply_grpo(settings), 0};
  apply_scores(settings, task.settings, false);
  task.longest = config::Apply(settings, "every prompt", "tool").whole("capture.max_length") +
                 sampler.whole("generate.max_new_tokens");
  SF_CHECK(task.longest <= task.settings.token_budget, Exit::kConfig,
           "grpo.token_budget = {} ({}) is less than the {} tokens of a prompt and its answer",
           task.settings.token_budget, settings.origin("grpo.token_budget"), task.longest);
  sampler.whole("generate.batch"), sampler.word("target.compute_dtype");
  const config::Apply drawn(settings, "0 answers (a plan draws none)", "gen");
  for (const std::string& key : settings.unapplied())
    if (key.starts_with("generate.") || key.starts_with("eval.") || key == "lora.seed" || key == "grpo.eval_every")
      drawn.nothing(key);
  return grpo_request(settings, task, world);
}

PlanRequest plan_request(config::Settings& settings, int world) {
  config::Apply shapes(settings, "the shapes", "tool");
  std::string algorithm = shapes.word("plan.algorithm");
  const bool draft = algorithm != "sft" && algorithm != "grpo";
  if (!draft)
    config::Apply(settings, fmt::format("0 shapes ({} trains the target)", algorithm), "tool").nothing("plan.draft");
  Json target_config = config_of(settings, "plan.target");
  Json draft_config = draft ? config_of(settings, "plan.draft") : Json();
  SF_CHECK(target_config.is_object() || draft_config.is_object(), Exit::kConfig,
           "plan.target: the shapes of the target are wanted: a table with what its config.json says, or its path");
  std::optional<arch::Decoder> target;
  if (target_config.is_object()) target = arch::decoder_from_config(target_config);
  if (draft_config.is_object() || !draft)
    set_aside_draft(settings, draft ? "plan.draft says them" : algorithm + " has none");
  if (algorithm == "grpo") return grpo_request(settings, *target, world);
  Samples samples = apply_samples(settings, draft);
  if (!draft) return sft_request(settings, *target, {}, samples, world);
  Json config = draft_config.is_object() ? draft_config : new_draft(settings, algorithm, *target);
  const arch::DraftFamily& family = arch::draft_family_named(algorithm);
  arch::DraftInput input = family.input(config);
  SF_CHECK(!target || (target->hidden == input.hidden && target->vocab == input.vocab), Exit::kConfig,
           "plan.draft: a draft of states of {} over {} tokens, the target has {} and {}", input.hidden, input.vocab,
           target->hidden, target->vocab);
  return draft_request(settings, family, config, target && target->tied, samples, world);
}

void set_limits(PlanRequest& request, uint64_t memory, uint64_t bandwidth) {
  int sharers = request.load.ranks_here > 0 ? request.load.ranks_here : request.options.world;
  const MemoryLimit limit = memory > 0 ? MemoryLimit{memory, "as given"} : memory_limit(sharers);
  request.memory = limit.bytes;
  request.memory_origin = limit.origin;
  request.bandwidth = static_cast<double>(bandwidth);
}

void apply_modes(config::Settings& settings, PlanRequest& request,
                 const std::function<uint64_t(uint64_t limit)>& agree) {
  if (settings.get_string("engine.mode") != "auto") {
    config::Apply(settings, "0 segments (engine.mode says what is kept)", "engine").nothing("engine.memory");
    return;
  }
  SF_CHECK(request.work, Exit::kConfig,
           "engine.mode = \"auto\" ({}): the plan does not know the activations of this {} run; say keep, recompute or "
           "offload",
           settings.origin("engine.mode"), request.algorithm);
  std::string words = settings.get_string("engine.memory");
  uint64_t limit = words.empty() ? request.memory : bytes_of_setting(settings, "engine.memory");
  if (agree) limit = agree(limit);
  plan::Load load = request.load;
  auto resident = [&](const plan::Schedule& schedule) {
    load.work_bytes = request.work(schedule);
    uint64_t most = 0;
    for (int rank = 0; rank < schedule.options.world; ++rank)
      most = std::max(most, plan::totals_of(schedule, load, rank).resident);
    return most;
  };
  if (limit == 0) limit = UINT64_MAX;
  request.options.modes = plan::choose_modes(request.spec, request.options, resident, limit);
  // --plan prints the whole plan first, and then says so.
  if (agree && !fault("tool.squeeze_in")) {
    uint64_t need = resident(plan::make_schedule(request.spec, request.spec.segments, request.options));
    SF_CHECK(need <= limit, Exit::kConfig,
             "does not fit: a rank needs {} bytes with the fewest activations kept, and may use {} ({}): {} bytes too "
             "many; --plan says what would help",
             need, limit, words.empty() ? request.memory_origin : "engine.memory", need - limit);
  }
  if (request.memory == 0 || limit < request.memory) {
    request.memory = limit;
    request.memory_origin = "engine.memory";
  }
  settings.applied("engine.memory", words,
                   fmt::format("the mode of every segment ({} not kept)", request.options.modes.size()), "engine");
}

}  // namespace sf::tool
