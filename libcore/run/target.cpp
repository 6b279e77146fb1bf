// SPDX-License-Identifier: Apache-2.0
#include "run/target.h"

#include <fmt/core.h>

#include <utility>

#include "arch/drafts.h"
#include "base/error.h"
#include "base/hash.h"
#include "config/apply.h"
#include "run/entry.h"
#include "text/tokenizer.h"
#include "tool/prompts.h"

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
