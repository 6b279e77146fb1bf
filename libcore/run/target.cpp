// SPDX-License-Identifier: Apache-2.0
#include "run/target.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "config/apply.h"
#include "run/entry.h"
#include "text/tokenizer.h"

namespace sf::run {
namespace {

using config::Apply;

std::vector<int32_t> stop_ids(app::Invocation& invocation, const OpenTarget& target) {
  std::vector<int32_t> ids;
  for (int64_t id : target.model.decoder().eos) ids.push_back(static_cast<int32_t>(id));
  config::Settings& settings = invocation.settings();
  std::vector<std::string> texts = settings.get_strings("generate.stop");
  for (const std::string& text : texts) {
    std::vector<int32_t> tokens = target.encoder.tokenizer().encode(text);
    SF_CHECK(tokens.size() == 1, Exit::kConfig, "generate.stop: \"{}\" is {} tokens of this target, one wanted ({})",
             text, tokens.size(), settings.origin("generate.stop"));
    ids.push_back(tokens[0]);
  }
  settings.applied("generate.stop", std::to_string(texts.size()), fmt::format("{} stop ids", ids.size()), "gen");
  if (Apply(settings, fmt::format("{} stop ids", ids.size()), "gen").flag("generate.ignore_eos")) ids.clear();
  return ids;
}

}  // namespace

OpenTarget open_target(app::Invocation& invocation) {
  config::Settings& settings = invocation.settings();
  apply_threads(invocation, "target.threads", 1);
  Dtype compute = *dtype_from_config(settings.get_string("target.compute_dtype"));
  ckpt::Checkpoint checkpoint = ckpt::Checkpoint::open(invocation.get("target"));
  text::ChatEncoder encoder = text::ChatEncoder::open(checkpoint.dir());
  gen::Target model = gen::Target::load(checkpoint, compute);
  Apply(settings, fmt::format("{} layers", model.decoder().layers), "gen").word("target.compute_dtype");
  return {std::move(checkpoint), std::move(encoder), std::move(model), compute};
}

gen::GenerateOptions generate_options(app::Invocation& invocation, const OpenTarget& target) {
  Apply answers(invocation.settings(), "every answer", "gen");
  gen::GenerateOptions options;
  options.sampling = {.temperature = answers.number("generate.temperature"),
                      .top_k = answers.whole("generate.top_k"),
                      .top_p = answers.number("generate.top_p"),
                      .min_p = answers.number("generate.min_p"),
                      .repetition_penalty = answers.number("generate.repetition_penalty"),
                      .seed = static_cast<uint64_t>(answers.whole("generate.seed"))};
  options.max_new_tokens = answers.whole("generate.max_new_tokens");
  options.batch = answers.whole("generate.batch");
  options.stop_ids = stop_ids(invocation, target);
  options.cancelled = [&invocation] { return invocation.stop() != app::Stop::kNone; };
  options.check();
  return options;
}

EncodedPrompts encode_prompts(app::Invocation& invocation, const OpenTarget& target) {
  EncodedPrompts result;
  result.prompts = text::read_prompts(invocation.get("prompts"));
  if (invocation.has("limit")) {
    std::string text = invocation.get("limit");
    size_t limit = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
    SF_CHECK(error == std::errc() && end == text.data() + text.size() && limit > 0, Exit::kUsage,
             "--limit {}: wanted a whole number from 1", text);
    if (limit < result.prompts.size()) result.prompts.resize(limit);
  }
  SF_CHECK(!result.prompts.empty(), Exit::kData, "{} holds no prompt", invocation.get("prompts"));
  int64_t room = target.model.decoder().max_positions;
  std::set<std::string> ids;
  for (const text::Prompt& prompt : result.prompts) {
    SF_CHECK(ids.insert(prompt.id).second, Exit::kData, "{}: the id {} occurs twice; answers are kept by id",
             invocation.get("prompts"), prompt.id);
    gen::Prompt encoded{.sample = xxh3_64(prompt.id), .ids = target.encoder.encode_prompt(prompt.messages)};
    SF_CHECK(static_cast<int64_t>(encoded.ids.size()) < room, Exit::kData,
             "prompt {}: {} tokens, but this target has {} positions", prompt.id, encoded.ids.size(), room);
    result.encoded.push_back(std::move(encoded));
  }
  return result;
}

std::vector<std::string> eagle3_layers(const arch::Eagle3& draft) {
  std::vector<std::string> layers;
  for (int64_t layer : draft.capture_layers) layers.push_back(std::to_string(layer));
  layers.push_back("final_norm");
  return layers;
}

std::vector<std::string> dflash_layers(const arch::Dflash& draft) {
  std::vector<std::string> layers;
  for (int64_t layer : draft.capture_layers) layers.push_back(std::to_string(layer));
  return layers;
}

CaptureWish capture_wish(const Json& draft_config) {
  if (arch::is_dflash(draft_config)) {
    arch::Dflash draft = arch::dflash_from_config(draft_config);
    SF_CHECK(!draft.capture_layers.empty(), Exit::kConfig, "the draft's config.json names no target_layer_ids");
    return {"dflash", draft.capture_layers, false, dflash_layers(draft)};
  }
  arch::Eagle3 draft = arch::eagle3_from_config(draft_config);
  return {"eagle3", {draft.capture_layers.begin(), draft.capture_layers.end()}, true, eagle3_layers(draft)};
}

stream::Contract contract_of(const OpenTarget& target, const CaptureWish& wish) {
  stream::Contract contract;
  contract.algorithm = wish.algorithm;
  contract.target = target.checkpoint.identity();
  contract.tokenizer = target.encoder.tokenizer_digest();
  contract.chat_template = target.encoder.template_digest();
  contract.layers = wish.names;
  contract.compute_dtype = name_of(target.compute);
  contract.vocab = target.model.decoder().vocab;
  contract.hidden = target.model.decoder().hidden;
  return contract;
}

}  // namespace sf::run
