// SPDX-License-Identifier: Apache-2.0
#include "tool/facts.h"

#include <fmt/format.h>

#include <algorithm>

#include "arch/drafts.h"

namespace sf::tool {
namespace {

constexpr size_t kMostNamed = 4;  // differences

// Facts that are settings of their own names in another section than [generate].
std::string key_of(std::string_view fact) {
  for (std::string_view name : {"system", "prompt", "thinking", "samples"})
    if (fact == name) return "eval." + std::string(fact);
  for (std::string_view name : {"draft_tokens", "tree_nodes", "tree_width", "least_confidence"})
    if (fact == name) return "speculation." + std::string(fact);
  if (fact == "compute_dtype") return "target.compute_dtype";
  for (std::string_view name : {"seed", "temperature", "top_k", "top_p", "min_p", "repetition_penalty",
                                "max_new_tokens", "stop", "stop_ids", "ignore_eos"})
    if (fact == name) return "generate." + std::string(fact);
  return std::string(fact);
}

// A digest, or any long text, by its beginning.
std::string shown(const Json* value) {
  constexpr size_t kMost = 40;
  if (!value) return "not set";
  const std::string text = value->dump();
  return text.size() > kMost ? fmt::format("{:.{}}...", text, kMost) : text;
}

}  // namespace

std::string facts_difference(const Json& was, const Json& is, std::initializer_list<std::string_view> skip) {
  std::vector<std::string> found;
  auto look = [&](std::string_view key) {
    const Json *before = was.find(key), *now = is.find(key);
    if (std::ranges::find(skip, key) != skip.end() || (before && now && *before == *now)) return;
    std::string line = fmt::format("{} was {}, is {}", key_of(key), shown(before), shown(now));
    if (std::ranges::find(found, line) == found.end()) found.push_back(std::move(line));
  };
  for (const Json* facts : {&was, &is})
    if (facts->is_object())
      for (const auto& [key, value] : facts->as_object()) look(key);
  if (found.size() > kMostNamed) {
    found.resize(kMostNamed);
    found.emplace_back("...");
  }
  return fmt::format("{}", fmt::join(found, "; "));
}

void add_draft_facts(Json& facts, const ckpt::Checkpoint& draft, const arch::Proposals& proposals,
                     const config::Settings& settings) {
  facts.set("draft", draft.identity()).set("draft_tokens", proposals.depth);
  if (proposals.branch()) facts.set("tree_nodes", proposals.nodes).set("tree_width", proposals.width);
  const arch::DraftFamily& family = arch::draft_family(draft.config());
  if (family.judges && family.judges(draft.config()))
    facts.set("least_confidence", settings.get_float("speculation.least_confidence"));
}

Json draw_facts(const AnswerSettings& asked) {
  Json json = Json::object().set("temperature", asked.temperature);
  json.set("repetition_penalty", asked.repetition_penalty).set("max_new_tokens", asked.max_new_tokens);
  json.set("top_k", asked.top_k).set("top_p", asked.top_p).set("min_p", asked.min_p);
  return json.set("seed", static_cast<int64_t>(asked.seed));
}

Json chat_job(const ckpt::Checkpoint& target, const text::ChatEncoder& encoder, const AnswerSettings& asked,
              Dtype compute) {
  Json job = Json::object().set("target", target.identity());
  job.set("tokenizer", encoder.tokenizer_digest()).set("template", encoder.template_digest());
  job.set("compute_dtype", name_of(compute)).set("sampling", draw_facts(asked));
  Json::Array ids;
  for (int32_t id : asked.stop_ids) ids.emplace_back(int64_t{id});
  return job.set("stop_ids", std::move(ids)).set("stop", Json::Array(asked.stop_texts.begin(), asked.stop_texts.end()));
}

}  // namespace sf::tool
