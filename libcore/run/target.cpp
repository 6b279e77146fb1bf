// SPDX-License-Identifier: Apache-2.0
#include "run/target.h"

#include <fmt/core.h>

#include <ATen/ops/from_blob.h>

#include <tuple>
#include <utility>

#include "arch/drafts.h"
#include "base/error.h"
#include "base/hash.h"
#include "ckpt/end_ids.h"
#include "config/apply.h"
#include "plan/residency.h"
#include "run/entry.h"
#include "tensor/convert.h"
#include "text/tokenizer.h"
#include "tool/host_places.h"
#include "tool/open_adapter.h"
#include "tool/prompts.h"

namespace sf::run {
namespace {

using config::Apply;

// A text that is one special token ends an answer as its id; others are looked for in the text.
void read_stops(app::Invocation& invocation, const OpenTarget& target, gen::GenerateOptions& options) {
  config::Settings& settings = invocation.settings();
  const text::Tokenizer& tokenizer = target.encoder.tokenizer();
  std::vector<int32_t> given;
  for (const std::string& text : settings.get_strings("generate.stop")) {
    SF_CHECK(!text.empty(), Exit::kConfig, "generate.stop holds an empty text ({})", settings.origin("generate.stop"));
    const std::vector<int32_t> tokens = tokenizer.encode(text);
    if (tokens.size() == 1 && tokenizer.is_special(tokens[0]))
      given.push_back(tokens[0]);
    else
      options.stop_texts.push_back(text);
  }
  if (!options.stop_texts.empty()) options.tokenizer = &tokenizer;
  for (int64_t id : settings.get_ints("generate.stop_ids")) {
    SF_CHECK(id < target.model.decoder().vocab, Exit::kConfig,
             "generate.stop_ids: {} is outside the vocabulary of {} ({})", id, target.model.decoder().vocab,
             settings.origin("generate.stop_ids"));
    given.push_back(static_cast<int32_t>(id));
  }
  options.stop_ids = ckpt::end_ids_of(target.checkpoint.dir(), target.model.decoder());
  options.stop_ids.insert(options.stop_ids.end(), given.begin(), given.end());
  const std::string what =
      fmt::format("{} stop ids and {} stop texts", options.stop_ids.size(), options.stop_texts.size());
  for (const char* key : {"generate.stop", "generate.stop_ids"})
    settings.applied(key, settings.shown(key), what, "gen");
  if (!Apply(settings, what, "gen").flag("generate.ignore_eos")) return;
  options.stop_ids.clear();
  options.stop_texts.clear();
}

// The one parameter of a target that is not multiplied, where shard.host_resident names it.
std::pair<std::shared_ptr<engine::HostFile>, at::Tensor> map_embedding(app::Invocation& invocation,
                                                                       const ckpt::Checkpoint& checkpoint) {
  constexpr const char* kEmbedding = "model.embed_tokens.weight";
  config::Settings& settings = invocation.settings();
  Apply resident(settings, "the target", "run");
  std::vector<std::string> names = plan::host_resident(arch::describe(arch::decoder_from_config(checkpoint.config())),
                                                       resident.word("shard.host_resident"));
  for (const std::string& name : names)
    SF_CHECK(name == kEmbedding, Exit::kConfig,
             "host-resident {} of a target: only {} can be, which is looked up; the rest is multiplied", name,
             kEmbedding);
  const bool copied = settings.given("shard.host_dir");
  std::string dir = Apply(settings, fmt::format("{} files of host tables", names.size()), "run").word("shard.host_dir");
  if (names.empty()) return {};
  std::optional<tool::HostPlace> place = tool::place_in(checkpoint, kEmbedding);
  SF_CHECK(place, Exit::kConfig, "{}: {} is stored in a type that is not computed with; sf-init model --dtype",
           checkpoint.dir().string(), kEmbedding);
  Shape shape = checkpoint.info(kEmbedding).shape;
  uint64_t bytes = static_cast<uint64_t>(numel(shape)) * size_of(place->type);
  std::unique_ptr<comm::Group> alone = comm::make_single();
  auto file = std::make_shared<engine::HostFile>(
      *alone, bytes, engine::HostSource{place->file, place->offset, place->type, place->digest, copied}, dir,
      comm::Call{"host table", Deadline::after(Seconds(120))});
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
  const char* key = "speculation.least_confidence";
  std::unique_ptr<gen::Drafter> draft =
      gen::open_drafter(files, target, {.least_confidence = invocation.settings().get_float(key)});
  if (draft->judges())
    config::Apply(invocation.settings(), "every proposal", "gen").number(key);
  else
    config::Apply(invocation.settings(), "0 proposals (the draft has no confidence head)", "gen").nothing(key);
  return draft;
}

gen::GenerateOptions generate_options(app::Invocation& invocation, const OpenTarget& target) {
  Apply answers(invocation.settings(), "every answer", "gen");
  gen::GenerateOptions options;
  options.sampling = {.temperature = answers.number("generate.temperature"),
                      .repetition_penalty = answers.number("generate.repetition_penalty")};
  if (options.sampling.greedy()) {
    Apply without(invocation.settings(), "0 draws (generate.temperature = 0 is greedy)", "gen");
    for (const char* key : {"generate.top_k", "generate.top_p", "generate.min_p", "generate.seed"})
      without.nothing(key);
  } else {
    options.sampling.top_k = answers.whole("generate.top_k");
    options.sampling.top_p = answers.number("generate.top_p");
    options.sampling.min_p = answers.number("generate.min_p");
    options.sampling.seed = static_cast<uint64_t>(answers.whole("generate.seed"));
  }
  options.max_new_tokens = answers.whole("generate.max_new_tokens");
  options.batch = answers.whole("generate.batch");
  read_stops(invocation, target, options);
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
