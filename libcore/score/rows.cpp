// SPDX-License-Identifier: Apache-2.0
#include "score/rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "score/columns.h"
#include "score/extract.h"
#include "score/strings.h"

namespace sf::score {
namespace {

using Names = Columns::Names;

constexpr int64_t kMost = INT32_MAX;  // samples, tokens

const Names kIds = {"id", "problem_idx", "question_id", "prompt_id", "uid"};
const Names kTexts = {"problem", "question", "prompt"};
const Names kAsked = {"problem", "question", "prompt", "messages", "conversations"};
const Names kChats = {"messages", "conversations"};
const Names kGolds = {"gold", "answer", "final_answer", "target", "ground_truth", "gts"};
const Names kGoldsBesideAnswer = {"gold", "target", "ground_truth", "gts"};
const Names kCompletions = {"completion", "response", "output", "generation", "text"};
const Names kSamples = {"sample", "sample_index", "sample_id"};
const Names kTokens = {"tokens", "new_tokens", "completion_tokens", "num_tokens"};
const Names kFinishes = {"finish", "finish_reason"};
// Columns that data sets and tools bring along and that change no verdict.
constexpr std::array<std::string_view, 41> kKnown = {
    "solution",      "url",         "year",         "part",        "problem number", "problem_type",
    "data_source",   "ability",     "reward_model", "extra_info",  "prompt",         "messages",
    "conversations", "input_ids",   "loss_mask",    "finish",      "finish_reason",  "logprob",
    "doc_id",        "doc",         "arguments",    "resps",       "filtered_resps", "filter",
    "metrics",       "exact_match", "doc_hash",     "prompt_hash", "target_hash",    "input",
    "score",         "acc",         "pred",         "step",        "reward",         "ids",
    "level",         "subject",     "type",         "answer_type", "prompt_tokens"};

bool is_known(std::string_view name) {
  for (const Names& names : {kIds, kTexts, kGolds, kCompletions, kSamples, kTokens})
    if (std::find(names.begin(), names.end(), name) != names.end()) return true;
  return std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end();
}

bool equal(const Json& a, const Json& b) {
  return a == b;
}

std::string place(std::string_view origin, size_t line) {
  return fmt::format("{}:{}", origin, line);
}

std::string plain(const Json& value) {
  return value.is_string() ? value.as_string() : value.dump();
}

// A gold is a text or a number, alone or as the one item of a list; an empty text is none.
std::optional<std::string> gold_text(const Columns& row, const Column& column) {
  if (!column) return std::nullopt;
  const Json& value = *column.value;
  const Json& one = value.is_array() && value.as_array().size() == 1 ? value.as_array()[0] : value;
  if (!one.is_string() && !one.is_number()) row.odd(column, "a text or a number");
  std::string text = plain(one);
  return trimmed(text).empty() ? std::nullopt : std::optional(std::move(text));
}

// Of a nested column, named as it would be in a message.
Column inside(const Columns& row, std::string_view outer, std::string_view inner, std::string_view shown) {
  const Column column = row.first({outer});
  const Json* value = column && column.value->is_object() ? column.value->find(inner) : nullptr;
  return value && !value->is_null() ? Column{shown, value} : Column{};
}

// What all columns of golds agree on, else the last box of a solution.
std::optional<std::string> gold_of(const Columns& row, Names names) {
  std::optional<std::string> gold;
  Column said;
  auto take = [&](const Column& column) {
    std::optional<std::string> text = gold_text(row, column);
    if (!text) return;
    if (gold && !same_gold(*gold, *text)) row.contradict(said, column);
    if (gold) return;
    gold = std::move(text);
    said = column;
  };
  for (std::string_view name : names) take(row.first({name}));
  take(inside(row, "reward_model", "ground_truth", "reward_model.ground_truth"));
  if (gold) return gold;
  const Column solution = row.first({"solution"});
  if (!solution || !solution.value->is_string()) return std::nullopt;
  const Box box = last_box(solution.value->as_string());
  if (!box.content) return std::nullopt;
  return std::string(box.content->of(solution.value->as_string()));
}

// An id is a text or a whole number: anything else would be another id in the next tool. U+FFFD stands for bytes that
// were no text, so two ids that hold it may have been different.
std::string id_of(const Columns& row, std::string otherwise, std::set<std::string>* unknown = nullptr) {
  const Column id = row.first(kIds);
  if (!id) return otherwise;
  if (!id.value->is_int() && (!id.value->is_string() || id.value->as_string().empty()))
    fail(Exit::kData, "{}: the id ({}) is {}; wanted a text or a whole number", row.where(), id.name, id.value->dump());
  std::string text = plain(*id.value);
  SF_CHECK(text.find("\xEF\xBF\xBD") == std::string::npos, Exit::kData,
           "{}: the id ({}) {} holds bytes that are no UTF-8, or U+FFFD in their place; wanted a text", row.where(),
           id.name, text);
  for (std::string_view name : kIds)
    if (const Column other = row.first({name}); unknown && other && plain(*other.value) != text)
      unknown->emplace(other.name);
  return text;
}

// The text of the question that the row brings, or empty; its columns must agree.
Column asked_of(const Columns& row, Names names) {
  const Column found = row.first(names);
  for (std::string_view name : names)
    if (const Column other = row.first({name}); other && other.value != found.value)
      if (!may_be_one_question(asked_words(row, found), asked_words(row, other))) row.contradict(found, other);
  return found;
}

bool prompt_opens_thinking(std::string_view prompt) {
  return trimmed_ascii(prompt).ends_with("<think>");
}

// How answers end; a length limit cuts them.
constexpr std::array<std::string_view, 12> kEnds = {"",          "stop",          "length",         "eos",
                                                    "eos_token", "stop_sequence", "end_turn",       "tool_calls",
                                                    "tool_call", "function_call", "content_filter", "abort"};

void set_finish(AnswerRow& answer, const Columns& row) {
  std::string finish = row.text(row.one(kFinishes, equal)).value_or("");
  answer.cut = finish == "length";
  if (std::ranges::find(kEnds, finish) == kEnds.end()) answer.finish = std::move(finish);
}

int64_t tokens_of(const Columns& row) {
  const Column tokens = row.first(kTokens), ids = row.first({"ids"}), mask = row.first({"loss_mask"});
  if (tokens && !tokens.value->is_array()) return *row.whole(tokens, kMost);
  if (const Column& list = tokens ? tokens : ids) {
    if (!list.value->is_array()) row.odd(list, "a list of tokens");
    return std::ssize(list.value->as_array());
  }
  if (!mask) return -1;
  if (!mask.value->is_array()) row.odd(mask, "a list of 0 and 1");
  return std::ranges::count(mask.value->as_array(), Json(1));
}

std::optional<int64_t> step_of(const Columns& row) {
  return row.whole(row.first({"step"}), INT64_MAX);
}

bool is_harness_row(const Json& row) {
  const Json *doc = row.find("doc"), *answers = row.find("resps");
  return doc && answers && doc->is_object() && answers->is_array();
}

void flatten(const Columns& row, const Json& value, std::vector<std::string>& into) {
  if (value.is_array()) {
    for (const Json& item : value.as_array()) flatten(row, item, into);
    return;
  }
  SF_CHECK(value.is_string(), Exit::kData, "{}: resps holds {}; wanted texts", row.where(), value.type_name());
  into.push_back(value.as_string());
}

std::vector<AnswerRow> harness_answers(const Columns& row, size_t line) {
  const Columns doc(*row.first({"doc"}).value, row.where());
  const Column number = row.first({"doc_id"}), target = row.first({"target"});
  if (number && !number.value->is_int() && !number.value->is_string()) row.odd(number, "a text or a whole number");
  Question question{.id = id_of(doc, number ? plain(*number.value) : std::to_string(line)), .text = "", .gold = ""};
  question.origin = row.where();
  if (const Column text = asked_of(doc, kTexts)) question.text = asked_words(doc, text);
  const std::optional<std::string> own = gold_of(doc, kGolds), beside = gold_text(row, target);
  SF_CHECK(own || beside, Exit::kData, "{}: the sample's doc has no answer and there is no target", row.where());
  SF_CHECK(!own || !beside || same_gold(*own, *beside), Exit::kData,
           "{}: the doc's answer is {}, but target is {}; keep one of the columns", row.where(), *own, *beside);
  question.gold = own ? *own : *beside;
  std::vector<std::string> texts;
  flatten(row, *row.first({"resps"}).value, texts);
  SF_CHECK(!texts.empty(), Exit::kData, "{}: resps holds no text", row.where());
  std::vector<AnswerRow> answers;
  for (size_t i = 0; i < texts.size(); ++i) {
    AnswerRow answer{.id = question.id, .sample = static_cast<int64_t>(i), .text = std::move(texts[i])};
    answer.question = question;
    answer.asked = question.text;
    answer.filter = row.text(row.first({"filter"})).value_or("none");
    answer.line = line;
    answers.push_back(std::move(answer));
  }
  return answers;
}

AnswerRow verl_answer(const Columns& row, size_t line) {
  const std::string input = *row.text(row.first({"input"}));
  AnswerRow answer{.id = id_of(row, "input-" + sha256_hex(input).substr(0, 16)),
                   .text = *row.text(row.first({"output"})),
                   .opened_thinking = prompt_opens_thinking(input),
                   .tokens = tokens_of(row),
                   .step = step_of(row)};
  set_finish(answer, row);
  answer.asked = input;
  answer.line = line;
  if (auto gold = gold_of(row, {"gts", "ground_truth"}))
    answer.question = Question{.id = answer.id, .text = input, .gold = *gold, .origin = row.where()};
  return answer;
}

// A completion, else what the assistant of a chat says last, else `answer`. Its column.
Column answer_text(const Columns& row, const std::string& id, std::string& text) {
  const Column said = row.one(kCompletions, equal), chat = row.first(kChats), answer = row.first({"answer"});
  const std::string spoken = chat ? words_of(row, chat, "assistant") : "";
  if (said) {
    text = *row.text(said);
    if (!spoken.empty() && spoken != text) row.contradict(said, chat);
    return said;
  }
  if (!spoken.empty()) {
    text = spoken;
    return chat;
  }
  SF_CHECK(answer && !chat, Exit::kData,
           "{}: answer to {} has no text: wanted completion, response, output, generation, text, messages or answer",
           row.where(), id);
  text = *row.text(answer);
  return answer;
}

}  // namespace

Question question_of(const Json& json, size_t line, std::string_view origin, std::set<std::string>& unknown,
                     bool need_gold) {
  const Columns row(json, place(origin, line));
  row.note_unknown(is_known, unknown);
  Question question{.id = id_of(row, std::to_string(line), &unknown), .text = "", .gold = "", .origin = row.where()};
  if (const Column text = asked_of(row, kAsked)) {
    const bool chat = !text.value->is_string();
    if (chat) question.messages = *text.value;
    question.text = chat && text.value->is_array() && text.value->as_array().size() > 1 ? words_of(row, text, "")
                                                                                        : asked_words(row, text);
  }
  std::optional<std::string> gold = gold_of(row, kGolds);
  SF_CHECK(gold || !need_gold, Exit::kData,
           "{}: question {} has no gold: wanted answer, final_answer, gold, target, reward_model.ground_truth, or a "
           "solution with a box",
           row.where(), question.id);
  question.gold = gold.value_or("");
  return question;
}

std::vector<AnswerRow> answers_of(const Json& json, size_t line, std::string_view origin,
                                  std::set<std::string>& unknown) {
  const Columns row(json, place(origin, line));
  if (is_harness_row(json)) return harness_answers(row, line);
  if (row.has("input") && row.has("output")) return {verl_answer(row, line)};
  row.note_unknown(is_known, unknown);
  AnswerRow answer{.id = id_of(row, std::to_string(line), &unknown),
                   .sample = row.whole(row.one(kSamples, equal), kMost),
                   .tokens = tokens_of(row),
                   .step = step_of(row)};
  set_finish(answer, row);
  answer.line = line;
  const bool is_answer = lowered(answer_text(row, answer.id, answer.text).name) == "answer";
  if (const Column prompt = asked_of(row, kTexts)) answer.asked = asked_words(row, prompt);
  answer.opened_thinking = prompt_opens_thinking(answer.asked);
  if (auto gold = gold_of(row, is_answer ? kGoldsBesideAnswer : kGolds))
    answer.question = Question{.id = answer.id, .text = answer.asked, .gold = *gold, .origin = row.where()};
  return {std::move(answer)};
}

bool is_facts_row(const Json& row) {
  if (!row.is_object() || (!row.contains("facts") && !row.contains("job")) || row.contains("messages")) return false;
  return std::ranges::none_of(row.as_object(), [](const Json::Member& member) {
    return std::find(kCompletions.begin(), kCompletions.end(), lowered(member.first)) != kCompletions.end();
  });
}

constexpr std::string_view kOperators = "+-/=<>^";   // x + y is not x - y
constexpr std::string_view kMinus = "\xE2\x88\x92";  // U+2212

std::string normal_question(std::string_view text) {
  std::string normal;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\' && at + 1 < text.size() && !is_letter(text[at + 1])) ++at;  // \, \! \(
    if (text.substr(at).starts_with(kMinus)) {
      normal += '-';
      at += kMinus.size() - 1;
      continue;
    }
    const char c = lower(text[at]);
    if (is_letter(c) || is_digit(c) || static_cast<unsigned char>(c) >= 0x80 || kOperators.find(c) != kOperators.npos)
      normal += c;
  }
  return normal;
}

bool may_be_one_question(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty() || a == b) return true;
  const std::string one = normal_question(a), other = normal_question(b);
  auto holds = [](const std::string& text, const std::string& part) {  // memmem is linear, whatever the texts
    return part.empty() || memmem(text.data(), text.size(), part.data(), part.size()) != nullptr;
  };
  return holds(one, other) || holds(other, one);
}

namespace {

// Fragments are forms of normal_question without operators.
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
  std::erase_if(normal, [](char c) { return kOperators.find(c) != kOperators.npos; });
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
