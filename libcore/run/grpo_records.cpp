// SPDX-License-Identifier: Apache-2.0
#include "run/grpo_records.h"

#include <fmt/core.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/present.h"
#include "score/scores.h"

namespace sf::run {
namespace {

namespace fs = std::filesystem;

Json list_of(const auto& values, auto&& as) {
  Json::Array list;
  for (const auto& value : values) list.emplace_back(as(value));
  return Json(std::move(list));
}

Json ids_of(const std::vector<int32_t>& ids) {
  return list_of(ids, [](int32_t id) { return int64_t{id}; });
}

// What the answers depend on. They are greedy, whatever the responses are drawn at.
Json facts_of(const tool::GrpoTask& task, const HeldAdapter& adapter) {
  Json facts = Json::object().set("target", task.contract.target).set("adapter", adapter.digest);
  facts.set("step", adapter.version).set("tokenizer", task.contract.tokenizer);
  facts.set("template", task.contract.chat_template);
  for (const auto& [key, value] : task.held->exam.facts.as_object()) facts.set(key, value);
  return facts.set("temperature", 0.0);
}

std::string verdict_lines(const tool::GrpoTask& task, Json header, std::span<const gen::Completion> answers,
                          const Judged& judged) {
  std::string lines = header.dump() + "\n";
  for (size_t k = 0; k < answers.size(); ++k) {
    const score::Verdict& verdict = judged.verdicts[k];
    const score::ScoredAnswer scored{.question = static_cast<uint32_t>(k),
                                     .tokens = static_cast<int32_t>(answers[k].ids.size()),
                                     .outcome = verdict.outcome,
                                     .cut = answers[k].finish == gen::Finish::kLength,
                                     .normal = verdict.normal};
    lines += score::line_of(scored, task.held->question(k).id, verdict.span, verdict.reason) + "\n";
  }
  return lines;
}

}  // namespace

GrpoRecords::GrpoRecords(fs::path run_dir, const tool::GrpoTask& task, int64_t step)
    : dir_(std::move(run_dir)), task_(task) {
  if (step == 0)
    for (const char* name : {"rollouts", "held"}) fs::remove_all(dir_ / name);
}

void GrpoRecords::responses(const HeldAdapter& adapter, std::span<const size_t> rows,
                            std::span<const train::Response> responses, const Judged& judged) const {
  std::string lines;
  for (size_t k = 0; k < responses.size(); ++k) {
    Json line = Json::object().set("id", task_.asked.exam.prompts[rows[k]].id);
    line.set("sample", static_cast<int64_t>(k) % task_.settings.responses);
    line.set("adapter", adapter.version).set("digest", adapter.digest).set("score", responses[k].score);
    line.set("outcome", std::string(score::name_of(judged.verdicts[k].outcome)));
    if (!judged.program.empty()) line.set("reward", judged.program[k]);
    line.set("prompt_ids", ids_of(responses[k].prompt)).set("ids", ids_of(responses[k].answer));
    line.set("log_probs", list_of(responses[k].rollout_log_probs, [](double value) { return value; }));
    lines += line.dump() + "\n";
  }
  fs::create_directories(dir_ / "rollouts");
  write_atomic(dir_ / "rollouts" / fmt::format("step-{}.jsonl", adapter.version + 1), lines);
}

std::string GrpoRecords::answer_lines(const Json& facts, std::span<const gen::Completion> answers,
                                      const Judged& judged) const {
  std::string lines = Json::object().set("facts", facts).dump() + "\n";
  for (size_t k = 0; k < answers.size(); ++k)
    lines += Json::object()
                 .set("id", task_.held->question(k).id)
                 .set("sample", 0)
                 .set("completion", judged.texts[k])
                 .set("finish", std::string(gen::name_of(answers[k].finish)))
                 .set("tokens", std::ssize(answers[k].ids))
                 .set("prompt_tokens", std::ssize(task_.held->ids[k]))
                 .set("ids", ids_of(answers[k].ids))
                 .dump() +
             "\n";
  return lines;
}

bool GrpoRecords::has_held(int64_t step) const {
  return is_present(dir_ / "held" / fmt::format("step-{}.jsonl", step));
}

bool GrpoRecords::held(const HeldAdapter& adapter, std::span<const gen::Completion> answers,
                       const Judged& judged) const {
  const Json facts = facts_of(task_, adapter);
  const std::string text = answer_lines(facts, answers, judged);
  Json header = Json::object().set("kind", "scores").set("v", score::kScoresVersion);
  header.set("rule", task_.rule.name()).set("rule_version", task_.rule.version());
  header.set("rule_digest", task_.rule.digest()).set("questions", std::ssize(task_.held->ids));
  header.set("questions_digest", task_.held->exam.book.digest()).set("answers", std::ssize(answers));
  header.set("answers_digest", sha256_hex(text)).set("step", adapter.version).set("facts", facts);
  std::string name = fmt::format("step-{}.jsonl", adapter.version);
  const bool first = !has_held(adapter.version);
  std::string lines = verdict_lines(task_, header, answers, judged);
  if (!first) {
    if (read_file(dir_ / "held" / name) == lines) return true;
    lines = verdict_lines(task_, header.set("again", true), answers, judged);
    name = fmt::format("step-{}-again.jsonl", adapter.version);
  }
  fs::create_directories(dir_ / "held" / "answers");
  write_atomic(dir_ / "held" / "answers" / name, text);
  write_atomic(dir_ / "held" / name, lines);
  return first;
}

}  // namespace sf::run
