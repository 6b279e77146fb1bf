// SPDX-License-Identifier: Apache-2.0
#include "tool/target_settings.h"

#include <fmt/core.h>

#include "base/error.h"
#include "ckpt/end_ids.h"
#include "config/apply.h"
#include "config/origins.h"
#include "plan/residency.h"

namespace sf::tool {

using config::Apply;

namespace {

void read_stops(config::Settings& settings, const ckpt::Checkpoint& target, const arch::Decoder& decoder,
                const text::Tokenizer& tokenizer, AnswerSettings& answers) {
  std::vector<int32_t> given;
  for (const std::string& text : settings.get_strings("generate.stop")) {
    SF_CHECK(!text.empty(), Exit::kConfig, "generate.stop holds an empty text ({})", settings.origin("generate.stop"));
    const std::vector<int32_t> tokens = tokenizer.encode(text);
    if (tokens.size() == 1 && tokenizer.is_special(tokens[0]))
      given.push_back(tokens[0]);
    else
      answers.stop_texts.push_back(text);
  }
  for (int64_t id : settings.get_ints("generate.stop_ids")) {
    SF_CHECK(id < decoder.vocab, Exit::kConfig, "generate.stop_ids: {} is outside the vocabulary of {} ({})", id,
             decoder.vocab, settings.origin("generate.stop_ids"));
    given.push_back(static_cast<int32_t>(id));
  }
  answers.stop_ids = ckpt::end_ids_of(target.dir(), decoder);
  answers.stop_ids.insert(answers.stop_ids.end(), given.begin(), given.end());
  const std::string what =
      fmt::format("{} stop ids and {} stop texts", answers.stop_ids.size(), answers.stop_texts.size());
  for (const char* key : {"generate.stop", "generate.stop_ids"})
    settings.applied(key, settings.shown(key), what, "gen");
  if (!Apply(settings, what, "gen").flag("generate.ignore_eos")) return;
  answers.stop_ids.clear();
  answers.stop_texts.clear();
}

}  // namespace

AnswerSettings apply_answers(config::Settings& settings, const ckpt::Checkpoint& target, const arch::Decoder& decoder,
                             const text::Tokenizer& tokenizer) {
  Apply each(settings, "every answer", "gen");
  AnswerSettings answers{.temperature = each.number("generate.temperature"),
                         .repetition_penalty = each.number("generate.repetition_penalty")};
  if (answers.temperature == 0) {
    Apply without(settings, "0 draws (generate.temperature = 0 is greedy)", "gen");
    for (const char* key : {"generate.top_k", "generate.top_p", "generate.min_p", "generate.seed"})
      without.nothing(key);
  } else {
    answers.top_k = each.whole("generate.top_k");
    answers.top_p = each.number("generate.top_p");
    answers.min_p = each.number("generate.min_p");
    answers.seed = static_cast<uint64_t>(each.whole("generate.seed"));
  }
  answers.max_new_tokens = each.whole("generate.max_new_tokens");
  answers.batch = each.whole("generate.batch");
  read_stops(settings, target, decoder, tokenizer, answers);
  return answers;
}

double apply_least_confidence(config::Settings& settings, bool judges) {
  const char* key = "speculation.least_confidence";
  if (judges) return Apply(settings, "every proposal", "gen").number(key);
  Apply(settings, "0 proposals (the draft has no confidence head)", "gen").nothing(key);
  return 0;
}

void apply_no_draft(config::Settings& settings) {
  const Apply none(settings, "0 drafts: there is no --draft", "gen");
  for (const char* key :
       {"speculation.draft_tokens", "speculation.tree_nodes", "speculation.tree_width", "speculation.least_confidence"})
    none.nothing(key);
}

void apply_no_stream(config::Settings& settings) {
  const Apply without(settings, "0 streams (a directory is written)", "run");
  for (const char* key : {"capture.cache_mib", "stream.credit_mib", "stream.heartbeat_s", "stream.stop_deadline_s",
                          "stream.bind", "stream.encrypt", "stream.rejoin_deadline_s", "stream.report_s"})
    without.nothing(key);
}

ProducerSettings apply_producer(config::Settings& settings, bool by_file) {
  const Apply ranks(settings, "every rank", "stream");
  ProducerSettings options;
  options.cache_bytes = static_cast<uint64_t>(Apply(settings, "finished samples", "stream").whole("capture.cache_mib"))
                        << 20;
  options.credit_bytes = static_cast<uint64_t>(ranks.whole("stream.credit_mib")) << 20;
  options.heartbeat_s = ranks.number("stream.heartbeat_s");
  options.stop_s = Apply(settings, "the ending", "stream").number("stream.stop_deadline_s");
  const Apply producer(settings, "1 producer", "stream");
  const std::string address = producer.word("stream.bind");
  options.bind = address.find("://") == std::string::npos ? fmt::format("tcp://{}:*", address) : address;
  options.encrypt = producer.flag("stream.encrypt");
  options.explain_s = producer.number("stream.report_s");
  const Apply rejoin(settings, by_file ? "every rank" : "0 ranks (a pipe ends with its reader)", "stream");
  options.rejoin_s = rejoin.number("stream.rejoin_deadline_s");
  return options;
}

HostEmbedding apply_host_embedding(config::Settings& settings, const arch::Decoder& decoder) {
  constexpr const char* kEmbedding = "model.embed_tokens.weight";
  const std::string asked = Apply(settings, "the target", "run").word("shard.host_resident");
  const std::vector<std::string> names =
      config::judged("shard.host_resident", [&] { return plan::host_resident(arch::describe(decoder), asked); });
  for (const std::string& name : names)
    SF_CHECK(name == kEmbedding, Exit::kConfig,
             "shard.host_resident: host-resident {} of a target: only {} can be, which is looked up; the rest is "
             "multiplied",
             name, kEmbedding);
  const bool copied = settings.given("shard.host_dir");
  return {!names.empty(), copied,
          Apply(settings, fmt::format("{} files of host tables", names.size()), "run").word("shard.host_dir")};
}

}  // namespace sf::tool
