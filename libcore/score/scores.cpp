// SPDX-License-Identifier: Apache-2.0
#include "score/scores.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/fault.h"
#include "score/strings.h"

namespace sf::score {

std::string Scores::label() const {
  std::string label = header.get_string("label", "");
  if (!label.empty()) return label;
  if (const Json* step = header.find("step"); step && step->is_int()) return fmt::format("step {}", step->as_int());
  return header.get_string("rule", "");
}

std::string Scores::coverage() const {
  const int64_t answered = std::ssize(ids), all = header.get_int("questions", answered);
  std::string shard = header.get_string("shard", "");
  if (shard.empty() && answered == all) return "";
  if (const size_t slash = shard.find('/'); slash != std::string::npos) shard.replace(slash, 1, " of ");
  return fmt::format("{}{} of {} questions", shard.empty() ? "" : "shard " + shard + ", ", answered, all);
}

std::string line_of(const ScoredAnswer& answer, const std::string& id, const Span& span, std::string_view reason) {
  Json row = Json::object().set("id", id).set("sample", int64_t{answer.sample});
  row.set("outcome", name_of(answer.outcome));
  if (span.size() > 0)
    row.set("span", Json::Array{Json(static_cast<int64_t>(span.begin)), Json(static_cast<int64_t>(span.end))});
  if (!answer.normal.empty())
    row.set("normal", valid_utf8(answer.normal) ? answer.normal : repaired_utf8(answer.normal));
  row.set("reason", reason);
  if (answer.tokens >= 0) row.set("tokens", int64_t{answer.tokens});
  if (answer.cut) row.set("cut", true);
  return row.dump();
}

namespace {

// What a header must or may say, and as what.
struct HeaderField {
  std::string_view name;
  bool (*fits)(const Json&);
  std::string_view wanted;
  bool needed;
};
constexpr auto kIsText = [](const Json& v) { return v.is_string() && !v.as_string().empty(); };
constexpr auto kIsCount = [](const Json& v) { return v.is_int() && v.as_int() >= 0; };
constexpr auto kIsFlag = [](const Json& v) { return v.is_bool(); };
constexpr auto kIsObject = [](const Json& v) { return v.is_object(); };
constexpr std::array<HeaderField, 12> kHeader = {{{"rule", kIsText, "a text", true},
                                                  {"rule_version", kIsCount, "a whole number", true},
                                                  {"rule_digest", kIsText, "a text", true},
                                                  {"questions_digest", kIsText, "a text", true},
                                                  {"questions", kIsCount, "a whole number from 0", false},
                                                  {"answers", kIsCount, "a whole number from 0", true},
                                                  {"answers_digest", kIsText, "a text", false},
                                                  {"shard", kIsText, "a text", false},
                                                  {"label", kIsText, "a text", false},
                                                  {"step", kIsCount, "a whole number from 0", false},
                                                  {"again", kIsFlag, "true or false", false},
                                                  {"facts", kIsObject, "an object", false}}};

}  // namespace

void ScoresReader::take_header(std::string_view line) {
  Json header = Json::parse(line, origin_ + ":1");
  SF_CHECK(header.is_object() && header.find("kind") && *header.find("kind") == Json("scores"), Exit::kData,
           "{}: no verdicts of sf-eval score: the first line has no \"kind\":\"scores\"", origin_);
  const Json* version = header.find("v");
  SF_CHECK(version && *version == Json(kScoresVersion), Exit::kProtocol, "{}: verdicts of version {}, wanted {}",
           origin_, version ? version->dump() : "none", kScoresVersion);
  for (const HeaderField& field : kHeader) {
    const Json* value = header.find(field.name);
    SF_CHECK(value || !field.needed, Exit::kData, "{}:1: the header has no {}", origin_, field.name);
    SF_CHECK(!value || field.fits(*value), Exit::kData, "{}:1: the header's {} is {}; wanted {}", origin_, field.name,
             value->dump(), field.wanted);
  }
  scores_.header = std::move(header);
}

uint32_t ScoresReader::index_of(std::string_view id) {
  auto found = index_.find(id);
  if (found != index_.end()) return found->second;
  auto index = static_cast<uint32_t>(scores_.ids.size());
  scores_.ids.emplace_back(id);
  index_.emplace(id, index);
  return index;
}

void ScoresReader::take(std::string_view line, size_t number) {
  const bool is_header = line_ == 0;
  line_ = number > 0 ? number : line_ + 1;
  if (is_header) return take_header(line);
  const std::string where = fmt::format("{}:{}", origin_, line_);
  const Json row = Json::parse(line, where);
  try {
    take_row(row);
  } catch (Error& error) {
    error.add_context(where);
    throw;
  }
}

void ScoresReader::take_row(const Json& row) {
  SF_CHECK(row.is_object(), Exit::kData, "wanted an object, found {}", row.type_name());
  const std::string& word = row.at("outcome").as_string();
  const std::optional<Outcome> outcome = outcome_from_name(word);
  SF_CHECK(outcome, Exit::kData, "there is no outcome {}", word);
  const int64_t sample = row.at("sample").as_int(), tokens = row.get_int("tokens", -1);
  SF_CHECK(sample >= 0 && sample <= INT32_MAX && tokens >= -1 && tokens <= INT32_MAX, Exit::kData,
           "sample {} or tokens {} out of range", sample, tokens);
  scores_.answers.push_back({.question = index_of(row.at("id").as_string()),
                             .sample = static_cast<int32_t>(sample),
                             .tokens = static_cast<int32_t>(tokens),
                             .outcome = *outcome,
                             .cut = row.get_bool("cut", false),
                             .line = static_cast<uint32_t>(line_),
                             .normal = row.get_string("normal", "")});
}

Scores ScoresReader::finish(bool may_lack) {
  SF_CHECK(line_ > 0, Exit::kData, "{}: empty", origin_);
  scores_.origin = origin_;
  const int64_t promised = scores_.header.at("answers").as_int(), found = std::ssize(scores_.answers);
  SF_CHECK(found == promised || (may_lack && found < promised) || fault("score.cut_verdicts"), Exit::kData,
           "{}: {} of the {} verdicts that its header promises; score the answers again", origin_, found, promised);
  auto before = [](const ScoredAnswer& a, const ScoredAnswer& b) {
    return a.question != b.question ? a.question < b.question : a.sample < b.sample;
  };
  auto& answers = scores_.answers;
  if (!std::is_sorted(answers.begin(), answers.end(), before)) std::stable_sort(answers.begin(), answers.end(), before);
  for (size_t i = 1; i < answers.size(); ++i)
    SF_CHECK(before(answers[i - 1], answers[i]), Exit::kData, "{}:{}: sample {} of question {} is in line {} already",
             origin_, answers[i].line, answers[i].sample, scores_.ids[answers[i].question], answers[i - 1].line);
  const int64_t questions = scores_.header.get_int("questions", INT64_MAX);
  SF_CHECK(std::ssize(scores_.ids) <= questions, Exit::kData, "{}: verdicts of {} questions; its header promises {}",
           origin_, scores_.ids.size(), questions);
  return std::move(scores_);
}

void require_comparable(const Scores& a, const Scores& b) {
  if (fault("score.mix_rules")) return;
  for (const char* key : {"rule", "rule_version", "rule_digest", "questions_digest"}) {
    const Json *left = a.header.find(key), *right = b.header.find(key);
    std::string one = left ? left->dump() : "none", other = right ? right->dump() : "none";
    SF_CHECK(one == other, Exit::kProtocol,
             "{} and {} cannot be compared: {} is {} and {}; score both by one rule over one set", a.origin, b.origin,
             key, one, other);
  }
}

Summary summarise(const Scores& scores) {
  Summary summary;
  summary.questions = static_cast<int64_t>(scores.ids.size());
  summary.answers = static_cast<int64_t>(scores.answers.size());
  summary.tallies.resize(scores.ids.size());
  double majorities = 0;
  std::vector<Vote> votes;
  for (size_t i = 0; i < scores.answers.size(); ++i) {
    const ScoredAnswer& answer = scores.answers[i];
    bool correct = answer.outcome == Outcome::kCorrect;
    ++summary.outcomes[static_cast<size_t>(answer.outcome)];
    summary.cut += answer.cut;
    if (answer.tokens >= 0) summary.tokens += answer.tokens, ++summary.with_tokens;
    Tally& tally = summary.tallies[answer.question];
    ++tally.n;
    tally.c += correct;
    votes.push_back({answer.normal, correct});
    bool last = i + 1 == scores.answers.size() || scores.answers[i + 1].question != answer.question;
    if (!last) continue;
    majorities += majority(votes);
    votes.clear();
  }
  if (summary.answers == 0) return summary;
  auto fewer = [](const Tally& a, const Tally& b) { return a.n < b.n; };
  auto [least, most] = std::minmax_element(summary.tallies.begin(), summary.tallies.end(), fewer);
  summary.least = least->n;
  summary.most = most->n;
  summary.rate = mean_rate(summary.tallies);
  summary.interval = mean_interval(summary.tallies);
  summary.error = clustered_error(summary.tallies);
  summary.within = within_error(summary.tallies);
  summary.majority = majorities / static_cast<double>(summary.questions);
  for (int64_t k = 2; k <= summary.least; k = k < summary.least ? std::min(2 * k, summary.least) : k + 1) {
    double sum = 0;
    for (const Tally& tally : summary.tallies) sum += pass_at(tally, k);
    summary.pass_at.emplace_back(k, sum / static_cast<double>(summary.questions));
  }
  return summary;
}

Majorities majorities_of(const Scores& scores, const Summary& summary) {
  Majorities found;
  found.draws = std::clamp<int64_t>(kMostSubsets / std::max<int64_t>(1, summary.questions), 100, kMostSubsets);
  std::vector<std::vector<Vote>> votes(scores.ids.size());
  for (const ScoredAnswer& answer : scores.answers)
    votes[answer.question].push_back({answer.normal, answer.outcome == Outcome::kCorrect});
  for (const auto& [k, passed] : summary.pass_at) {
    if (k >= summary.least) continue;
    double sum = 0;
    for (const std::vector<Vote>& one : votes) sum += majority_at(one, k, 0, found.draws);
    found.at.emplace_back(k, sum / static_cast<double>(summary.questions));
  }
  return found;
}

Reading Summary::reading() const {
  Reading reading{.n = answers, .correct = count(Outcome::kCorrect)};
  for (size_t i = 0; i < kOutcomes; ++i)
    if (is_readable(static_cast<Outcome>(i))) reading.readable += outcomes[i];
  return reading;
}

Json Summary::to_json() const {
  Json json = Json::object().set("questions", questions).set("answers", answers);
  json.set("answers_a_question", Json::Array{Json(least), Json(most)});
  json.set("pass_at_1", rate).set("interval_95", Json::Array{Json(interval.low), Json(interval.high)});
  json.set("interval_kind", most == 1 ? "wilson" : "clustered by question");
  json.set("standard_error", error).set("standard_error_within", within);
  json.set("reward", reward_of_accuracy(rate));
  Json passes = Json::object();
  for (const auto& [k, value] : pass_at) passes.set(std::to_string(k), value);
  json.set("pass_at", std::move(passes)).set("maj_at_n", majority);
  Json counts = Json::object();
  for (size_t i = 0; i < kOutcomes; ++i) counts.set(name_of(static_cast<Outcome>(i)), outcomes[i]);
  json.set("outcomes", std::move(counts)).set("readable", reading().readable).set("cut", cut);
  json.set("tokens", with_tokens > 0 ? Json(tokens) : Json()).set("answers_with_tokens", with_tokens);
  return json;
}

}  // namespace sf::score
