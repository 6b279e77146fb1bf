// SPDX-License-Identifier: Apache-2.0
#include "score/rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/hash.h"
#include "score/extract.h"
#include "score/strings.h"

namespace sf::score {
namespace {

using Names = std::initializer_list<std::string_view>;

const Names kIds = {"id", "problem_idx", "question_id", "prompt_id", "uid"};
const Names kTexts = {"problem", "question", "prompt"};
const Names kChats = {"messages", "conversations"};
const Names kGolds = {"gold", "answer", "final_answer", "target", "ground_truth", "gts"};
const Names kCompletions = {"completion", "response", "output", "generation", "text"};
const Names kSamples = {"sample", "sample_index", "sample_id"};
const Names kTokens = {"tokens", "new_tokens", "completion_tokens", "num_tokens"};
// Columns that data sets and tools bring along and that change no verdict.
constexpr std::array<std::string_view, 41> kKnown = {
    "solution",      "url",         "year",         "part",        "problem number", "problem_type",
    "data_source",   "ability",     "reward_model", "extra_info",  "prompt",         "messages",
    "conversations", "input_ids",   "loss_mask",    "finish",      "finish_reason",  "logprob",
    "doc_id",        "doc",         "arguments",    "resps",       "filtered_resps", "filter",
    "metrics",       "exact_match", "doc_hash",     "prompt_hash", "target_hash",    "input",
    "score",         "acc",         "pred",         "step",        "reward",         "ids",
    "level",         "subject",     "type",         "answer_type", "prompt_tokens"};

const Json* find_any(const Json& row, Names names) {
  for (std::string_view name : names)
    for (const auto& [key, value] : row.as_object())
      if (!value.is_null() && lowered(key) == name) return &value;
  return nullptr;
}

bool is_among(std::string_view key, Names names) {
  return std::find(names.begin(), names.end(), key) != names.end();
}

void note_unknown(const Json& row, std::set<std::string>& unknown) {
  for (const auto& [key, value] : row.as_object()) {
    std::string name = lowered(key);
    bool known = is_among(name, kIds) || is_among(name, kTexts) || is_among(name, kGolds) ||
                 is_among(name, kCompletions) || is_among(name, kSamples) || is_among(name, kTokens) ||
                 std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end();
    if (!known) unknown.insert(key);
  }
}

std::string place(std::string_view origin, size_t line) {
  return fmt::format("{}:{}", origin, line);
}

std::string plain(const Json& value) {
  return value.is_string() ? value.as_string() : value.dump();
}

// A string, or the contents of chat messages of one role ("" for all), joined.
std::string words_of(const Json& value, std::string_view role) {
  if (!value.is_array()) return plain(value);
  std::string text;
  for (const Json& message : value.as_array()) {
    if (!message.is_object()) continue;
    if (!role.empty() && message.get_string("role", "") != role) continue;
    const Json* content = message.find("content");
    if (content && content->is_string())
      text = role.empty() ? text + content->as_string() + "\n" : content->as_string();
  }
  return text;
}

std::optional<std::string> gold_of(const Json& row, Names names) {
  if (const Json* gold = find_any(row, names))
    return plain(gold->is_array() && gold->as_array().size() == 1 ? gold->as_array()[0] : *gold);
  const Json* reward = row.find("reward_model");
  if (const Json* gold = reward && reward->is_object() ? reward->find("ground_truth") : nullptr) return plain(*gold);
  const Json* solution = find_any(row, {"solution"});
  if (!solution || !solution->is_string()) return std::nullopt;
  Box box = last_box(solution->as_string());
  if (!box.content) return std::nullopt;
  return std::string(box.content->of(solution->as_string()));
}

// `where` is "ORIGIN:LINE". An id is a text or a whole number: anything else would be another id in the next tool.
std::string id_of(const Json& row, std::string otherwise, const std::string& where) {
  const Json* id = find_any(row, kIds);
  if (!id) return otherwise;
  SF_CHECK(id->is_int() || (id->is_string() && !id->as_string().empty()), Exit::kData,
           "{}: the id is {}; wanted a text or a whole number", where, id->dump());
  return plain(*id);
}

bool prompt_opens_thinking(std::string_view prompt) {
  return trimmed_ascii(prompt).ends_with("<think>");
}

bool cut_of(const Json& row) {
  const Json* finish = find_any(row, {"finish", "finish_reason"});
  return finish && finish->is_string() && finish->as_string() == "length";
}

int64_t tokens_of(const Json& row) {
  if (const Json* tokens = find_any(row, kTokens)) {
    if (tokens->is_int()) return tokens->as_int();
    if (tokens->is_array()) return static_cast<int64_t>(tokens->as_array().size());
  }
  if (const Json* ids = find_any(row, {"ids"}); ids && ids->is_array())
    return static_cast<int64_t>(ids->as_array().size());
  const Json* mask = row.find("loss_mask");
  if (!mask || !mask->is_array()) return -1;
  return std::count(mask->as_array().begin(), mask->as_array().end(), Json(1));
}

std::optional<int64_t> sample_of(const Json& row, const std::string& where) {
  const Json* sample = find_any(row, kSamples);
  if (!sample) return std::nullopt;
  SF_CHECK(sample->is_int() && sample->as_int() >= 0 && sample->as_int() <= INT32_MAX, Exit::kData,
           "{}: the sample is {}; wanted a whole number from 0 to {}", where, sample->dump(), INT32_MAX);
  return sample->as_int();
}

std::optional<int64_t> whole(const Json* value) {
  return value && value->is_int() ? std::optional(value->as_int()) : std::nullopt;
}

bool is_harness_row(const Json& row) {
  const Json *doc = row.find("doc"), *answers = row.find("resps");
  return doc && answers && doc->is_object() && answers->is_array();
}

void flatten(const Json& value, std::vector<std::string>& into) {
  if (value.is_string()) into.push_back(value.as_string());
  if (value.is_array())
    for (const Json& item : value.as_array()) flatten(item, into);
}

std::vector<AnswerRow> harness_answers(const Json& row, size_t line, std::string_view origin) {
  const Json& doc = row.at("doc");
  const Json* number = row.find("doc_id");
  Question question{id_of(doc, number ? plain(*number) : std::to_string(line), place(origin, line)), "", ""};
  if (const Json* text = find_any(doc, kTexts)) question.text = words_of(*text, "user");
  std::optional<std::string> gold = gold_of(doc, kGolds);
  if (!gold && row.find("target")) gold = plain(row.at("target"));
  SF_CHECK(gold, Exit::kData, "{}:{}: the sample's doc has no answer and there is no target", origin, line);
  question.gold = *gold;
  std::vector<std::string> texts;
  flatten(row.at("resps"), texts);
  SF_CHECK(!texts.empty(), Exit::kData, "{}:{}: resps holds no text", origin, line);
  std::vector<AnswerRow> answers;
  for (size_t i = 0; i < texts.size(); ++i) {
    AnswerRow answer{.id = question.id, .sample = static_cast<int64_t>(i), .text = std::move(texts[i])};
    answer.question = question;
    answer.filter = row.get_string("filter", "none");
    answers.push_back(std::move(answer));
  }
  return answers;
}

AnswerRow verl_answer(const Json& row, size_t line, std::string_view origin) {
  const Json &input = row.at("input"), &output = row.at("output");
  SF_CHECK(input.is_string() && output.is_string(), Exit::kData, "{}:{}: input and output must be strings", origin,
           line);
  AnswerRow answer{.id = id_of(row, "input-" + sha256_hex(input.as_string()).substr(0, 16), place(origin, line)),
                   .text = output.as_string(),
                   .cut = cut_of(row),
                   .opened_thinking = prompt_opens_thinking(input.as_string()),
                   .tokens = tokens_of(row),
                   .step = whole(row.find("step"))};
  if (auto gold = gold_of(row, {"gts", "ground_truth"}))
    answer.question = Question{answer.id, input.as_string(), *gold};
  return answer;
}

}  // namespace

Question question_of(const Json& row, size_t line, std::string_view origin, std::set<std::string>& unknown,
                     bool need_gold) {
  SF_CHECK(row.is_object(), Exit::kData, "{}:{}: wanted an object, found {}", origin, line, row.type_name());
  note_unknown(row, unknown);
  Question question{id_of(row, std::to_string(line), place(origin, line)), "", ""};
  const Json* text = find_any(row, kTexts);
  if (!text) text = find_any(row, kChats);
  if (text && text->is_array()) question.messages = *text;
  if (text) question.text = words_of(*text, text->is_array() && text->as_array().size() > 1 ? "" : "user");
  std::optional<std::string> gold = gold_of(row, kGolds);
  SF_CHECK(gold || !need_gold, Exit::kData,
           "{}:{}: question {} has no gold: wanted answer, final_answer, gold, target, reward_model.ground_truth, or a "
           "solution with a box",
           origin, line, question.id);
  question.gold = gold.value_or("");
  return question;
}

std::vector<AnswerRow> answers_of(const Json& row, size_t line, std::string_view origin,
                                  std::set<std::string>& unknown) {
  SF_CHECK(row.is_object(), Exit::kData, "{}:{}: wanted an object, found {}", origin, line, row.type_name());
  if (is_harness_row(row)) return harness_answers(row, line, origin);
  if (row.contains("input") && row.contains("output")) return {verl_answer(row, line, origin)};
  note_unknown(row, unknown);
  const std::string where = place(origin, line);
  AnswerRow answer{.id = id_of(row, std::to_string(line), where),
                   .sample = sample_of(row, where),
                   .cut = cut_of(row),
                   .tokens = tokens_of(row),
                   .step = whole(row.find("step"))};
  const Json* text = find_any(row, kCompletions);
  const Json* chat = row.find("messages");
  if (!text && !chat) text = find_any(row, {"answer"});
  SF_CHECK(text || chat, Exit::kData,
           "{}:{}: answer to {} has no text: wanted completion, response, output, generation, text, messages or answer",
           origin, line, answer.id);
  answer.text = text ? plain(*text) : words_of(*chat, "assistant");
  if (const Json* prompt = find_any(row, kTexts))
    answer.opened_thinking = prompt_opens_thinking(words_of(*prompt, "user"));
  bool own = text != find_any(row, {"answer"});
  auto gold = own ? gold_of(row, kGolds) : gold_of(row, {"gold", "target", "ground_truth", "gts"});
  if (gold) {
    const Json* words = find_any(row, kTexts);
    answer.question = Question{answer.id, words ? words_of(*words, "user") : "", *gold};
  }
  return {std::move(answer)};
}

bool is_facts_row(const Json& row) {
  return row.is_object() && (row.contains("facts") || row.contains("job")) && !find_any(row, kCompletions) &&
         !row.contains("messages");
}

std::string normal_question(std::string_view text) {
  std::string normal;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\' && at + 1 < text.size() && !is_letter(text[at + 1])) ++at;  // \, \! \(
    char c = lower(text[at]);
    if (is_letter(c) || is_digit(c) || static_cast<unsigned char>(c) >= 0x80) normal += c;
  }
  return normal;
}

namespace {

// Fragments are normal forms of normal_question.
struct Defect {
  std::string_view fragment, gold, note;
};
constexpr std::array<Defect, 5> kDefects = {{
    {"numberofintersectionsofthegraphs", "385", "2024-I-12: some copies say 384"},
    {"rectanglesabcdandefgharedrawnsuchthat", "104", "2024-I-5: some copies were wrong"},
    {"changedirectionexactlyfourtimes", "294", "2024-I-6: some copies were wrong"},
    {"circumradius13andinradius6", "468", "2024-II-10: some copies were wrong"},
    {"x18x72x98xk", "240", "2025-II-15: some copies leave out that x is positive"},
}};

}  // namespace

std::string known_defect(const Question& question) {
  std::string normal = normal_question(question.text);
  for (const Defect& defect : kDefects) {
    if (normal.find(defect.fragment) == std::string::npos) continue;
    if (defect.gold == "240" && normal.find("positive") == std::string::npos) return std::string(defect.note);
    if (question.gold != defect.gold) return std::string(defect.note) + "; the gold is " + std::string(defect.gold);
  }
  if (question.gold.find("circ") != std::string::npos)
    return "the gold carries a degree sign (2025-II-5 in some copies)";
  return "";
}

}  // namespace sf::score
