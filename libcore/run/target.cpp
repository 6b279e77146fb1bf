// SPDX-License-Identifier: Apache-2.0
#include "run/target.h"

#include <fmt/core.h>

#include <ATen/ops/from_blob.h>

#include <tuple>
#include <utility>

#include "arch/drafts.h"
#include "base/error.h"
#include "base/hash.h"
#include "config/apply.h"
#include "run/entry.h"
#include "tensor/convert.h"
#include "tool/host_places.h"
#include "tool/open_adapter.h"
#include "tool/prompts.h"

namespace sf::run {
namespace {

using config::Apply;

// The one parameter of a target that is not multiplied, where shard.host_resident names it.
std::pair<std::shared_ptr<engine::HostFile>, at::Tensor> map_embedding(app::Invocation& invocation,
                                                                       const ckpt::Checkpoint& checkpoint) {
  constexpr const char* kEmbedding = "model.embed_tokens.weight";
  const tool::HostEmbedding asked =
      tool::apply_host_embedding(invocation.settings(), arch::decoder_from_config(checkpoint.config()));
  if (!asked.mapped) return {};
  std::optional<tool::HostPlace> place = tool::place_in(checkpoint, kEmbedding);
  SF_CHECK(place, Exit::kConfig, "{}: {} is stored in a type that is not computed with; sf-init model --dtype",
           checkpoint.dir().string(), kEmbedding);
  Shape shape = checkpoint.info(kEmbedding).shape;
  uint64_t bytes = static_cast<uint64_t>(numel(shape)) * size_of(place->type);
  std::unique_ptr<comm::Group> alone = comm::make_single();
  auto file = std::make_shared<engine::HostFile>(
      *alone, bytes, engine::HostSource{place->file, place->offset, place->type, place->digest, asked.copied},
      asked.dir, comm::Call{"host table", Deadline::after(Seconds(120))});
  invocation.log(fmt::format("host-resident {}: {:.1f} MiB {}, {}", kEmbedding, static_cast<double>(bytes) / 1048576.0,
                             name_of(place->type), file->is_copy() ? "one copy" : "mapped where it lies"));
  at::TensorOptions type(tensor::to_scalar(place->type));
  return {file, at::from_blob(file->bytes().data(), shape, type)};
}

OpenTarget load_target(app::Invocation& invocation, const std::filesystem::path& dir,
                       const std::optional<std::filesystem::path>& adapter_dir, const Json& variables,
                       bool host_resident) {
  config::Settings& settings = invocation.settings();
  apply_threads(invocation, "target.threads", invocation.ranks().local_world);
  Dtype compute = *dtype_from_config(settings.get_string("target.compute_dtype"));
  ckpt::Checkpoint checkpoint = ckpt::Checkpoint::open(dir);
  text::ChatEncoder encoder = text::ChatEncoder::open(checkpoint.dir(), variables);
  std::optional<ckpt::AdapterFiles> adapter = tool::open_adapter(invocation, checkpoint, adapter_dir);
  std::shared_ptr<engine::HostFile> host_table;
  at::Tensor embedding;
  if (host_resident) std::tie(host_table, embedding) = map_embedding(invocation, checkpoint);
  gen::Target model = gen::Target::load(checkpoint, compute, adapter ? &*adapter : nullptr, embedding);
  Apply(settings, fmt::format("{} layers", model.decoder().layers), "gen").word("target.compute_dtype");
  return {std::move(host_table), std::move(checkpoint), std::move(adapter),
          std::move(encoder),    std::move(model),      compute};
}

}  // namespace

OpenTarget open_target(app::Invocation& invocation) {
  return load_target(invocation, invocation.get("target"), tool::adapter_option(invocation), {}, false);
}

OpenTarget open_target(app::Invocation& invocation, const tool::Candidate& candidate, const Json& variables) {
  return load_target(invocation, candidate.target, candidate.adapter, variables, false);
}

OpenTarget open_host_target(app::Invocation& invocation) {
  return load_target(invocation, invocation.get("target"), tool::adapter_option(invocation), {}, true);
}

std::unique_ptr<gen::Drafter> open_draft(app::Invocation& invocation, const ckpt::Checkpoint& files,
                                         const gen::Target& target) {
  const double least = invocation.settings().get_float("speculation.least_confidence");
  std::unique_ptr<gen::Drafter> draft = gen::open_drafter(files, target, {.least_confidence = least});
  tool::apply_least_confidence(invocation.settings(), draft->judges());
  return draft;
}

gen::GenerateOptions generate_options(app::Invocation& invocation, const OpenTarget& target) {
  return generate_options(invocation, target,
                          tool::apply_answers(invocation.settings(), target.checkpoint, target.model.decoder(),
                                              target.encoder.tokenizer()));
}

gen::GenerateOptions generate_options(app::Invocation& invocation, const OpenTarget& target,
                                      tool::AnswerSettings asked) {
  gen::GenerateOptions options;
  options.sampling = {.temperature = asked.temperature, .repetition_penalty = asked.repetition_penalty};
  if (!options.sampling.greedy()) {
    options.sampling.top_k = asked.top_k;
    options.sampling.top_p = asked.top_p;
    options.sampling.min_p = asked.min_p;
    options.sampling.seed = asked.seed;
  }
  options.max_new_tokens = asked.max_new_tokens;
  options.batch = asked.batch;
  options.stop_ids = std::move(asked.stop_ids);
  options.stop_texts = std::move(asked.stop_texts);
  if (!options.stop_texts.empty()) options.tokenizer = &target.encoder.tokenizer();
  options.cancelled = [&invocation] { return invocation.stop() != app::Stop::kNone; };
  options.check();
  return options;
}

EncodedPrompts encode_prompts(app::Invocation& invocation, const OpenTarget& target) {
  tool::Prompts read = tool::read_prompts(invocation, target.encoder, target.model.decoder().max_positions);
  EncodedPrompts result{std::move(read.prompts), {}};
  const int64_t most = invocation.settings().get_int("generate.max_new_tokens");
  for (size_t i = 0; i < result.prompts.size(); ++i) {
    const int64_t room = target.model.decoder().max_positions - std::ssize(read.ids[i]);  // the prompt left some
    result.encoded.push_back({.sample = xxh3_64(result.prompts[i].id),
                              .ids = std::move(read.ids[i]),
                              .max_new_tokens = std::min(most, room)});
  }
  return result;
}

}  // namespace sf::run
