// SPDX-License-Identifier: Apache-2.0
#include "tool/exam.h"

#include <fmt/core.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/hash.h"
#include "config/apply.h"
#include "score/shards.h"
#include "tool/eval_data.h"
#include "tool/eval_score.h"

namespace sf::tool {
namespace {

constexpr std::string_view kProblem = "{problem}";

Json message(std::string_view role, std::string content) {
  return Json::object().set("role", role).set("content", std::move(content));
}

// What surrounds a question. Chats are sent as they are, with the system prompt in front if they have none.
struct Wording {
  std::string system, prompt;

  Json messages_for(const score::Question& question) const {
    Json::Array messages;
    if (question.messages.is_null()) {
      std::string text = prompt;
      text.replace(text.find(kProblem), kProblem.size(), question.text);
      messages.push_back(message("user", std::move(text)));
    } else {
      messages = text::prompt_messages(question.messages).as_array();
    }
    if (!system.empty() && messages.front().get_string("role", "") != "system")
      messages.insert(messages.begin(), message("system", system));
    return Json(std::move(messages));
  }
};

Wording wording_of(config::Settings& settings, const score::QuestionBook& book) {
  size_t texts = 0;
  for (const score::Question& question : book.questions()) texts += question.messages.is_null();
  config::Apply all(settings, fmt::format("{} questions", book.size()), "tool");
  config::Apply plain(settings, fmt::format("{} questions", texts), "tool");
  Wording wording{all.word("eval.system"), plain.word("eval.prompt")};
  const size_t first = wording.prompt.find(kProblem);
  SF_CHECK(first != std::string::npos && wording.prompt.find(kProblem, first + 1) == std::string::npos, Exit::kConfig,
           "eval.prompt (\"{}\", {}): wanted {{problem}} in it once", wording.prompt, settings.origin("eval.prompt"));
  return wording;
}

std::string prompts_digest(const std::vector<text::Prompt>& prompts) {
  std::string all;
  for (const text::Prompt& prompt : prompts)
    all += fmt::format("{}\n{}\n", Json(prompt.id).dump(), prompt.messages.dump());
  return sha256_hex(all);
}

// What is read from the settings here is made true, and echoed, by the rooms that sample.
Json sampling_facts(const config::Settings& settings) {
  Json facts = Json::object();
  facts.set("seed", settings.get_int("generate.seed"));
  facts.set("temperature", settings.get_float("generate.temperature"));
  facts.set("top_k", settings.get_int("generate.top_k")).set("top_p", settings.get_float("generate.top_p"));
  facts.set("min_p", settings.get_float("generate.min_p"));
  facts.set("repetition_penalty", settings.get_float("generate.repetition_penalty"));
  facts.set("max_new_tokens", settings.get_int("generate.max_new_tokens"));
  Json::Array texts, ids;
  for (const std::string& text : settings.get_strings("generate.stop")) texts.emplace_back(text);
  for (int64_t id : settings.get_ints("generate.stop_ids")) ids.emplace_back(id);
  facts.set("stop", std::move(texts)).set("stop_ids", std::move(ids));
  if (settings.get_bool("generate.ignore_eos")) facts.set("ignore_eos", true);
  return facts.set("compute_dtype", settings.get_string("target.compute_dtype"));
}

// Leaves the questions of this part.
void take_part(app::Invocation& invocation, Exam& exam) {
  SF_CHECK(!invocation.has("limit") || !invocation.has("shard"), Exit::kUsage,
           "--limit and --shard contradict: a shard is a part of the whole set");
  size_t begin = 0, end = exam.prompts.size();
  if (invocation.has("limit")) {
    end = std::min(end, static_cast<size_t>(whole_option(invocation, "limit", 1, INT64_MAX)));
    if (end < exam.prompts.size()) exam.part = fmt::format("first {}", end);
  }
  if (invocation.has("shard")) {
    const score::Shard shard = score::parse_shard(invocation.get("shard"));
    std::tie(begin, end) = score::range_of(shard, end);
    exam.part = "shard " + invocation.get("shard");
  }
  exam.prompts.resize(end);
  exam.prompts.erase(exam.prompts.begin(), exam.prompts.begin() + static_cast<std::ptrdiff_t>(begin));
}

Exam whole_exam(app::Invocation& invocation, config::Settings& settings, const std::string& file, bool need_gold) {
  Exam exam{.book = read_questions(invocation, file, HalfLine::kRefuse, need_gold),
            .prompts = {},
            .variables = {},
            .part = {},
            .facts = {}};
  const Wording wording = wording_of(settings, exam.book);
  for (const score::Question& question : exam.book.questions()) {
    SF_CHECK(!question.text.empty(), Exit::kData,
             "{}: question {} has no text: wanted problem, question, prompt or messages", file, question.id);
    exam.prompts.push_back(
        {question.id, wording.messages_for(question), fmt::format("{}: question {}", file, question.id)});
  }
  config::Apply every(settings, fmt::format("{} questions", exam.book.size()), "tool");
  exam.samples = every.whole("eval.samples");
  const std::string thinking = settings.get_string("eval.thinking");
  if (thinking != "template") exam.variables = Json::object().set("enable_thinking", thinking == "on");
  exam.facts = Json::object().set("questions", exam.book.asked_digest()).set("prompts", prompts_digest(exam.prompts));
  exam.facts.set("system", wording.system).set("prompt", wording.prompt).set("thinking", thinking);
  exam.facts.set("samples", exam.samples);
  const Json sampling = sampling_facts(settings);
  for (const auto& [key, value] : sampling.as_object()) exam.facts.set(key, value);
  return exam;
}

}  // namespace

Exam read_exam(app::Invocation& invocation, bool need_gold) {
  Exam exam = whole_exam(invocation, invocation.settings(), invocation.get("questions"), need_gold);
  take_part(invocation, exam);
  return exam;
}

Exam read_exam(app::Invocation& invocation, config::Settings& settings, const std::filesystem::path& file) {
  return whole_exam(invocation, settings, file.string(), true);
}

Json facts_of(const Exam& exam, const ckpt::Checkpoint& target, std::optional<int64_t> step,
              const ckpt::Checkpoint* adapter) {
  const text::Words words = text::digest_words(target.dir());
  Json facts = Json::object().set("target", target.identity());
  if (adapter && !fault("tool.forget_adapter")) facts.set("adapter", adapter->identity());
  const int64_t trained = (adapter ? *adapter : target).manifest().step;
  if (trained > 0 && !step) step = trained;
  if (step) facts.set("step", *step);
  facts.set("tokenizer", words.tokenizer).set("template", words.chat_template);
  for (const auto& [key, value] : exam.facts.as_object()) facts.set(key, value);
  return facts;
}

Json facts_of(const Exam& exam, const Candidate& candidate) {
  std::optional<ckpt::Checkpoint> adapter;
  if (candidate.adapter) adapter = ckpt::Checkpoint::open(*candidate.adapter);
  return facts_of(exam, ckpt::Checkpoint::open(candidate.target), candidate.step, adapter ? &*adapter : nullptr);
}

Json job_of(const Json& facts, const Exam& exam) {
  Json job = facts;
  return exam.part.empty() ? job : job.set("part", exam.part);
}

std::vector<std::vector<int32_t>> encode(config::Settings& settings, const Exam& exam, const text::ChatEncoder& encoder,
                                         int64_t positions) {
  const bool read = exam.variables.is_null() || encoder.mentions("enable_thinking");
  config::Apply(settings, read ? "the chat template" : "0 questions: the chat template has no enable_thinking", "text")
      .word("eval.thinking");
  std::vector<std::vector<int32_t>> all;
  for (const text::Prompt& prompt : exam.prompts) {
    try {
      all.push_back(encoder.encode_prompt(prompt.messages));
    } catch (Error& error) {
      error.add_context(prompt.origin + ", chat template");
      throw;
    }
    SF_CHECK(std::ssize(all.back()) < positions, Exit::kData, "{}: {} tokens, but this target has {} positions",
             prompt.origin, all.back().size(), positions);
  }
  return all;
}

}  // namespace sf::tool
