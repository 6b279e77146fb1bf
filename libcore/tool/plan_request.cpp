// SPDX-License-Identifier: Apache-2.0
#include "tool/plan_request.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "config/apply.h"
#include "plan/choose.h"
#include "plan/work.h"
#include "tool/apply_schedule.h"
#include "tool/memory_limit.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostConfigBytes = size_t{1} << 20;
constexpr int64_t kDflashLayers = 5;  // of a draft that only its target describes

uint64_t tensor_bytes(int64_t elements, Dtype type) {
  return plan::aligned_bytes(elements, type);
}

// The JSON object of plan.target or plan.draft: a table, or the path of config.json or of its directory. Null if not
// given.
Json config_of(config::Settings& settings, const std::string& key) {
  const Json& value = settings.get_table(key);
  if (value.is_object()) {
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
  config::Apply windows(settings, "every window", "train");
  request.rows = windows.whole("training.batch_size");
  request.load.micro_batches = windows.whole("training.micro_batches");
  request.load.checkpoints = config::Apply(settings, "the run's directory", "train").whole("training.keep_checkpoints");
  return request;
}

// Samples of this rank's two windows (the next is asked for while one is computed), bounded by the credit.
uint64_t under_way(const PlanRequest& request, const Samples& samples, uint64_t sample_bytes) {
  auto mine = static_cast<uint64_t>(2 * request.rows * plan::rounds(request.load.micro_batches, request.options.world));
  return std::min(samples.credit_bytes, mine * sample_bytes);
}

}  // namespace

Samples apply_samples(config::Settings& settings) {
  config::Apply rows(settings, "every row", "tool");
  Samples samples;
  samples.width = rows.whole("capture.max_length");
  samples.type = *dtype_from_config(rows.word("capture.feature_dtype"));
  samples.credit_bytes = static_cast<uint64_t>(rows.whole("stream.credit_mib")) << 20;
  return samples;
}

PlanRequest eagle3_request(config::Settings& settings, const arch::Eagle3& draft, const Samples& samples, int world) {
  PlanRequest request = request_of(settings, "eagle3", arch::describe_training(draft), samples.width, world);
  config::Apply segment(settings, "1 segment", "model");
  auto unroll = static_cast<int>(segment.whole("training.unroll"));
  bool quirks = segment.flag("training.reference_quirks");
  int64_t tokens = request.rows * request.width, features = 4 * draft.target_hidden;
  request.lookups = tokens * unroll;
  Dtype compute = request.options.compute;
  plan::Load& load = request.load;
  load.input_bytes = 3 * tensor_bytes(tokens, Dtype::kI64) + tensor_bytes(tokens, Dtype::kF32) +
                     tensor_bytes(tokens * 3 * draft.target_hidden, compute) +
                     tensor_bytes(tokens * draft.target_hidden, compute) + tensor_bytes(request.rows, Dtype::kI64);
  // The shadows know the cross-entropy alone.
  if (config::Apply(settings, "1 segment", "model").word("training.lk_loss_type") == "none")
    request.work = [=, batch = plan::full_eagle3_batch(request.rows, request.width, unroll, quirks)](
                       const plan::Schedule&) { return plan::eagle3_work(draft, unroll, compute, batch); };
  load.constant_bytes = tensor_bytes(draft.vocab, Dtype::kBool) + tensor_bytes(draft.draft_vocab, Dtype::kI64);
  uint64_t token = static_cast<uint64_t>(features) * size_of(samples.type) + 13;  // two ids, mask, log-sum-exp
  load.sample_bytes = under_way(request, samples, static_cast<uint64_t>(request.width) * token);
  return request;
}

PlanRequest dflash_request(config::Settings& settings, const arch::Dflash& draft, bool tied, const Samples& samples,
                           int world) {
  PlanRequest request = request_of(settings, "dflash", arch::describe_training(draft, tied), samples.width, world);
  int64_t tokens = request.rows * request.width;
  int64_t features = static_cast<int64_t>(draft.capture_layers.size()) * draft.hidden;
  int64_t blocks = request.rows * config::Apply(settings, "every row", "data").whole("training.num_anchors");
  request.lookups = blocks * draft.block;
  request.load.input_bytes = 2 * tensor_bytes(tokens, Dtype::kI64) +
                             tensor_bytes(tokens * features, request.options.compute) +
                             tensor_bytes(blocks, Dtype::kI64) + tensor_bytes(request.rows, Dtype::kI64) +
                             tensor_bytes(draft.block, Dtype::kF32);
  request.load.constant_bytes = plan::rotary_bytes(draft.head_dim, request.width + draft.block);
  request.work = [draft, spec = request.spec,
                  batch = plan::full_dflash_batch(draft, request.rows, request.width, blocks / request.rows)](
                     const plan::Schedule& schedule) { return plan::dflash_work(draft, spec, schedule, batch); };
  uint64_t token = static_cast<uint64_t>(features) * size_of(samples.type) + 5;  // id, mask
  request.load.sample_bytes = under_way(request, samples, static_cast<uint64_t>(request.width) * token);
  return request;
}

PlanRequest sft_request(config::Settings& settings, const arch::Decoder& model, const Samples& samples, int world) {
  PlanRequest request = request_of(settings, "sft", arch::describe_training(model), samples.width, world);
  request.load.input_bytes = 3 * tensor_bytes(request.rows * request.width, Dtype::kI64) + plan::kAlign;
  request.load.constant_bytes = plan::rotary_bytes(model.head_dim, request.width);
  request.work = [model, spec = request.spec, batch = plan::full_sft_batch(request.rows, request.width)](
                     const plan::Schedule& schedule) { return plan::sft_work(model, spec, schedule, batch); };
  return request;
}

PlanRequest plan_request(config::Settings& settings, int world) {
  config::Apply shapes(settings, "the shapes", "tool");
  std::string algorithm = shapes.word("plan.algorithm");
  Json target_config = config_of(settings, "plan.target"), draft_config = config_of(settings, "plan.draft");
  SF_CHECK(target_config.is_object() || (draft_config.is_object() && algorithm != "sft"), Exit::kConfig,
           "plan.target: the shapes of the target are wanted: a table with what its config.json says, or its path");
  std::optional<arch::Decoder> target;
  if (target_config.is_object()) target = arch::decoder_from_config(target_config);
  Samples samples = apply_samples(settings);
  if (algorithm == "sft") return sft_request(settings, *target, samples, world);
  if (algorithm == "dflash") {
    arch::Dflash draft = draft_config.is_object() ? arch::dflash_from_config(draft_config)
                                                  : arch::dflash_for_target(*target, kDflashLayers);
    SF_CHECK(!target || (target->hidden == draft.hidden && target->vocab == draft.vocab), Exit::kConfig,
             "plan.draft: hidden_size {} and vocab_size {}, the target has {} and {}", draft.hidden, draft.vocab,
             target->hidden, target->vocab);
    return dflash_request(settings, draft, target && target->tied, samples, world);
  }
  int64_t words = shapes.whole("draft.vocab_size");
  arch::Eagle3 draft = draft_config.is_object() ? arch::eagle3_from_config(draft_config)
                                                : arch::eagle3_for_target(*target, words > 0 ? words : target->vocab);
  SF_CHECK(!target || (target->hidden == draft.target_hidden && target->vocab == draft.vocab), Exit::kConfig,
           "plan.draft: target_hidden_size {} and vocab_size {}, the target has {} and {}", draft.target_hidden,
           draft.vocab, target->hidden, target->vocab);
  return eagle3_request(settings, draft, samples, world);
}

void set_limits(PlanRequest& request, std::string_view memory, std::string_view bandwidth) {
  int sharers = request.load.ranks_here > 0 ? request.load.ranks_here : request.options.world;
  MemoryLimit limit = memory_limit(memory, sharers);
  request.memory = limit.bytes;
  request.memory_origin = limit.origin;
  request.bandwidth = static_cast<double>(bytes_from_text(bandwidth, "bandwidth"));
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
  uint64_t limit = words.empty() ? request.memory : bytes_from_text(words, "engine.memory");
  if (agree) limit = agree(limit);
  plan::Load load = request.load;
  auto resident = [&](const plan::Schedule& schedule) {
    load.work_bytes = request.work(schedule);
    uint64_t most = 0;
    for (int rank = 0; rank < schedule.options.world; ++rank)
      most = std::max(most, plan::totals_of(schedule, load, rank).resident);
    return most;
  };
  request.options.modes = plan::choose_modes(request.spec, request.options, resident, limit > 0 ? limit : UINT64_MAX);
  if (request.memory == 0 || limit < request.memory) {
    request.memory = limit;
    request.memory_origin = "engine.memory";
  }
  settings.applied("engine.memory", words, fmt::format("{} segments that are not kept", request.options.modes.size()),
                   "engine");
}

}  // namespace sf::tool
