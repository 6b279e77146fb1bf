// SPDX-License-Identifier: Apache-2.0
// sf-eval accept: real speculative decoding of held-out prompts, beside plain decoding of the same prompts.
#include <fmt/core.h>

#include <map>
#include <memory>
#include <optional>

#include "base/error.h"
#include "ckpt/draft.h"
#include "gen/drafter.h"
#include "gen/speculative.h"
#include "run/entry.h"
#include "run/target.h"
#include "tool/plan_compute.h"

namespace sf::run {
namespace {

constexpr float kTieMargin = 1e-3f;  // logits closer than this may order either way in another kernel
constexpr size_t kTimedPrompts = 8;  // decoded one at a time, for tokens per second

using Answers = std::map<size_t, gen::Completion>;

// How the draft's answers compare with plain decoding's: equal token for token, or first different where two logits
// tie.
struct Equality {
  int64_t equal = 0, ties = 0, different = 0;
};

Equality compare(const Answers& plain, const Answers& drafted) {
  Equality result;
  for (const auto& [index, wanted] : plain) {
    const gen::Completion& found = drafted.at(index);
    if (found.ids == wanted.ids)
      ++result.equal;
    else if (wanted.least_margin < kTieMargin)
      ++result.ties;
    else
      ++result.different;
  }
  return result;
}

struct Timing {
  double plain = 0, draft = 0;  // tokens per second of decoding, one sequence at a time
  size_t prompts = 0;
};

double rate(const gen::GenerateStats& stats) {
  int64_t decoded = stats.new_tokens - stats.prompts;  // the prefill gives each prompt's first token
  return stats.decode_s > 0 ? static_cast<double>(decoded) / stats.decode_s : 0;
}

Timing time_both(OpenTarget& target, gen::Drafter& draft, std::span<const gen::Prompt> prompts,
                 gen::GenerateOptions options, const gen::Proposals& proposals) {
  options.batch = 1;
  prompts = prompts.first(std::min(prompts.size(), kTimedPrompts));
  auto ignore = [](const gen::Completion&) {};
  Timing timing{.prompts = prompts.size()};
  timing.plain = rate(gen::generate(target.model, prompts, options, ignore));
  timing.draft = rate(gen::speculate(target.model, draft, prompts, options, proposals, ignore).all);
  return timing;
}

Json to_json(const gen::SpeculativeStats& stats, const gen::GenerateStats& plain,
             const std::optional<Equality>& equality, const Timing& timing, const app::Invocation& invocation) {
  Json rates = Json::array();
  for (size_t i = 0; i < stats.tried.size(); ++i) {
    double share = stats.tried[i] ? static_cast<double>(stats.accepted[i]) / static_cast<double>(stats.tried[i]) : 0;
    rates.push(Json::object()
                   .set("accepted", stats.accepted[i])
                   .set("tried", stats.tried[i])
                   .set("rate", stats.tried[i] ? Json(share) : Json()));
  }
  Json result = Json::object();
  result.set("draft", invocation.get("draft"))
      .set("prompts", stats.all.prompts)
      .set("acceptance_length", stats.verifications ? Json(stats.acceptance_length()) : Json())
      .set("committed", stats.committed)
      .set("verifications", stats.verifications)
      .set("positions", std::move(rates))
      .set("greedy_equal", equality ? Json(equality->different == 0) : Json())
      .set("greedy_ties", equality ? Json(equality->ties) : Json())
      .set("greedy_different", equality ? Json(equality->different) : Json())
      .set("new_tokens", stats.all.new_tokens)
      .set("target_forwards_plain", plain.target_forwards)
      .set("target_forwards_draft", stats.all.target_forwards)
      .set("draft_forwards", stats.draft_forwards)
      .set("timed_prompts", static_cast<int64_t>(timing.prompts))
      .set("tokens_per_s_plain", timing.plain)
      .set("tokens_per_s_draft", timing.draft);
  return result;
}

// A ratio, or what stands for one without a denominator.
std::string ratio(const Json& value) {
  return value.is_null() ? "not run" : fmt::format("{:.3f}", value.as_double());
}

std::string to_text(const Json& json) {
  std::string text =
      fmt::format("acceptance length {}  ({} tokens in {} verifications, bonus included; n = {} prompts)\n",
                  ratio(json.at("acceptance_length")), json.at("committed").as_int(), json.at("verifications").as_int(),
                  json.at("prompts").as_int());
  int position = 0;
  for (const Json& row : json.at("positions").as_array())
    text += fmt::format("draft token {}      {}  ({} of {})\n", ++position, ratio(row.at("rate")),
                        row.at("accepted").as_int(), row.at("tried").as_int());
  if (json.at("greedy_equal").is_bool())
    text +=
        fmt::format("greedy equal       {} ({} ties, {} different)\n", json.at("greedy_equal").as_bool() ? "yes" : "NO",
                    json.at("greedy_ties").as_int(), json.at("greedy_different").as_int());
  text += fmt::format("tokens/s, one at a time: {:.1f} plain, {:.1f} with the draft ({} prompts)\n",
                      json.at("tokens_per_s_plain").as_double(), json.at("tokens_per_s_draft").as_double(),
                      json.at("timed_prompts").as_int());
  text += fmt::format("target forwards: {} plain, {} with the draft", json.at("target_forwards_plain").as_int(),
                      json.at("target_forwards_draft").as_int());
  return text;
}

int eval_accept(app::Invocation& invocation) {
  ckpt::Checkpoint draft_files = ckpt::Checkpoint::open(invocation.get("draft"));
  OpenTarget target = open_target(invocation);
  ckpt::check_target(draft_files, target.checkpoint);
  std::unique_ptr<gen::Drafter> draft = open_draft(invocation, draft_files, target.model);
  gen::GenerateOptions options = generate_options(invocation, target);
  const gen::Proposals proposals = tool::proposals_of(invocation.settings(), arch::draft_family(draft_files.config()));
  EncodedPrompts prompts = encode_prompts(invocation, target);
  invocation.stop();  // from here on a request to stop ends with what was done, said
  app::settle_settings(invocation);
  int64_t total = static_cast<int64_t>(prompts.encoded.size());
  Answers plain, drafted;
  auto keep = [&](Answers& into, const char* stage) {
    return [&, stage](const gen::Completion& done) {
      into[done.prompt] = done;
      invocation.progress(stage, static_cast<int64_t>(into.size()), total, "");
    };
  };
  gen::GenerateStats plain_stats = gen::generate(target.model, prompts.encoded, options, keep(plain, "plain decoding"));
  gen::SpeculativeStats stats =
      gen::speculate(target.model, *draft, prompts.encoded, options, proposals, keep(drafted, "with the draft"));
  if (invocation.stop() != app::Stop::kNone) {
    invocation.log(fmt::format(
        "stopped: {} of {} prompts answered plainly, {} with the draft; nothing is kept, since both are compared whole",
        plain_stats.prompts, total, stats.all.prompts));
    return 128 + invocation.stop_signal();
  }
  std::optional<Equality> equality;
  if (options.sampling.greedy()) equality = compare(plain, drafted);
  Timing timing = time_both(target, *draft, prompts.encoded, options, proposals);
  Json json = to_json(stats, plain_stats, equality, timing, invocation);
  invocation.result(invocation.json_output() ? json.dump() : to_text(json));
  return 0;
}

}  // namespace
}  // namespace sf::run

extern "C" int sf_eval_accept(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::eval_accept(*invocation); });
}
