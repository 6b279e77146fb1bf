// SPDX-License-Identifier: Apache-2.0
#include "tool/eval_score.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mmap.h"
#include "config/settings.h"
#include "score/rule.h"
#include "score/shards.h"
#include "score/verl_metrics.h"
#include "text/regex.h"
#include "tool/eval_data.h"
#include "tool/eval_text.h"

namespace sf::tool {
namespace {

constexpr size_t kExplained = 400;  // bytes shown on each side of the span

struct Judged {
  score::ScoredAnswer answer;
  score::Span span;
  std::string reason;
};

class Scoring {
 public:
  Scoring(app::Invocation& invocation, std::filesystem::path file)
      : invocation_(invocation), file_(std::move(file)), rule_(rule_of(invocation)) {
    if (invocation.has("questions")) book_ = read_questions(invocation, invocation.get("questions"));
    check_golds();
    if (!invocation.has("shard")) return;
    SF_CHECK(book_.size() > 0, Exit::kUsage, "--shard needs --questions: a shard is a part of them");
    std::tie(first_, last_) = range_of(score::parse_shard(invocation.get("shard")), book_.size());
  }

  void run() {
    found_ = read_answers(invocation_, file_, book_,
                          [&](score::AnswerRow row, size_t question) { judge(std::move(row), question); });
    check_golds();
    SF_CHECK(!judged_.empty(), Exit::kData, "{}: holds no answer", file_.string());
    std::stable_sort(judged_.begin(), judged_.end(), [](const Judged& a, const Judged& b) {
      return std::pair(a.answer.question, a.answer.sample) < std::pair(b.answer.question, b.answer.sample);
    });
    check_completeness();
  }

  int explain(const std::string& what) const {
    SF_CHECK(!explained_.empty(), Exit::kUsage, "--explain {}: there is no such answer{}; an answer is ID or ID/SAMPLE",
             what, near_ids(what));
    for (const std::string& text : explained_) invocation_.result(text);
    return 0;
  }

  score::Scores scores() const {
    score::Scores scores{.header = header(), .ids = {}, .answers = {}};
    for (const score::Question& question : book_.questions()) scores.ids.push_back(question.id);
    drop_unanswered(scores);
    return scores;
  }

  void write(const std::filesystem::path& out) const {
    std::string text = header().dump() + "\n";
    for (const Judged& one : judged_)
      text += score::line_of(one.answer, book_.questions()[one.answer.question].id, one.span, one.reason) + "\n";
    write_atomic(out, text);
  }

 private:
  // "; the nearest is aime-2", or nothing.
  std::string near_ids(const std::string& what) const {
    std::vector<std::string> ids;
    for (const Judged& one : judged_) {
      const std::string& id = book_.questions()[one.answer.question].id;
      ids.push_back(fmt::format("{}/{}", id, one.answer.sample));
      ids.push_back(id);
    }
    std::string near = config::nearest(what, ids);
    return near.empty() ? fmt::format(" (the first is {})", ids.front()) : fmt::format(" (the nearest is {})", near);
  }

  void check_golds() {
    for (; checked_ < book_.size(); ++checked_) {
      check_gold(rule_, book_.questions()[checked_]);
    }
  }

  void judge(score::AnswerRow row, size_t question) {
    if (question < first_ || question >= last_) return;
    if (next_sample_.size() <= question) next_sample_.resize(question + 1, 0);
    int64_t sample = row.sample.value_or(next_sample_[question]);
    next_sample_[question] = sample + 1;
    const score::Question& asked = book_.questions()[question];
    score::Answer answer{.text = row.text, .cut = row.cut, .opened_thinking = row.opened_thinking};
    score::Verdict verdict = rule_.score(asked.gold, answer);
    if (invocation_.has("explain")) explain_one(asked, sample, answer, verdict);
    judged_.push_back({{.question = static_cast<uint32_t>(question),
                        .sample = static_cast<int32_t>(sample),
                        .tokens = static_cast<int32_t>(std::clamp<int64_t>(row.tokens, -1, INT32_MAX)),
                        .outcome = verdict.outcome,
                        .cut = row.cut,
                        .normal = std::move(verdict.normal)},
                       verdict.span,
                       std::move(verdict.reason)});
  }

  void explain_one(const score::Question& asked, int64_t sample, const score::Answer& answer,
                   const score::Verdict& verdict) {
    std::string wanted = invocation_.get("explain");
    if (wanted != asked.id && wanted != fmt::format("{}/{}", asked.id, sample)) return;
    if (invocation_.json_output()) {
      Json json = Json::object().set("id", asked.id).set("sample", sample).set("rule", rule_.name());
      json.set("gold", asked.gold).set("outcome", name_of(verdict.outcome)).set("reason", verdict.reason);
      json.set("span", Json::Array{Json(static_cast<int64_t>(verdict.span.begin)),
                                   Json(static_cast<int64_t>(verdict.span.end))});
      json.set("extracted", verdict.span.of(answer.text)).set("normal", verdict.normal);
      explained_.push_back(json.dump());
      return;
    }
    score::Span shown = verdict.span.size() > 0 ? verdict.span : score::Span{answer.text.size(), answer.text.size()};
    explained_.push_back(fmt::format(
        "question    {}, sample {}\nrule        {} version {}\ngold        {}\noutcome     {} ({})\nfound       {}\n"
        "normal      {}\ntext        {}",
        asked.id, sample, rule_.name(), rule_.version(), asked.gold, name_of(verdict.outcome), verdict.reason,
        verdict.span.size() > 0 ? fmt::format("bytes {} to {}", verdict.span.begin, verdict.span.end) : "nothing",
        verdict.normal, marked(answer.text, shown, kExplained)));
  }

  void check_completeness() {
    std::vector<bool> answered(book_.size(), false);
    for (size_t i = 0; i < judged_.size(); ++i) {
      const score::ScoredAnswer& answer = judged_[i].answer;
      answered[answer.question] = true;
      bool twice =
          i > 0 && judged_[i - 1].answer.question == answer.question && judged_[i - 1].answer.sample == answer.sample;
      SF_CHECK(!twice, Exit::kData, "{}: sample {} of question {} occurs twice", file_.string(), answer.sample,
               book_.questions()[answer.question].id);
    }
    auto begin = answered.begin() + static_cast<std::ptrdiff_t>(first_);
    auto end = answered.begin() + static_cast<std::ptrdiff_t>(std::min(last_, answered.size()));
    auto missing = static_cast<size_t>(std::count(begin, end, false));
    if (missing == 0) return;
    size_t first = static_cast<size_t>(std::find(begin, end, false) - answered.begin());
    std::string text = fmt::format("{} of {} questions have no answer in {}, first {}", missing, end - begin,
                                   file_.string(), book_.questions()[first].id);
    SF_CHECK(invocation_.has("partial"), Exit::kData, "{}; --partial scores what there is", text);
    invocation_.warn(text);
  }

  // Leaves questions without answers out of the summary.
  void drop_unanswered(score::Scores& scores) const {
    std::vector<std::string> ids;
    uint32_t before = UINT32_MAX;
    for (const Judged& one : judged_) {
      if (one.answer.question != before) ids.push_back(scores.ids[one.answer.question]);
      before = one.answer.question;
      scores.answers.push_back(one.answer);
      scores.answers.back().question = static_cast<uint32_t>(ids.size() - 1);
    }
    scores.ids = std::move(ids);
  }

  // Of the answers' first line, or null.
  Json facts_of_answers() const {
    const Json* inner = found_.facts.is_object() ? found_.facts.find("facts") : nullptr;
    return inner ? *inner : found_.facts;
  }

  Json header() const {
    Json header = Json::object().set("kind", "scores").set("v", score::kScoresVersion);
    header.set("rule", rule_.name()).set("rule_version", rule_.version()).set("rule_digest", rule_.digest());
    header.set("questions", static_cast<int64_t>(book_.size())).set("questions_digest", book_.digest());
    header.set("answers", static_cast<int64_t>(judged_.size()));
    header.set("answers_digest", sha256_hex(MappedFile::open(file_).bytes()));
    if (invocation_.has("shard")) header.set("shard", invocation_.get("shard"));
    if (invocation_.has("label")) header.set("label", invocation_.get("label"));
    if (invocation_.has("step")) {
      header.set("step", whole_option(invocation_, "step", 0, INT64_MAX));
    } else if (found_.steps.size() == 1) {
      header.set("step", found_.steps.front());
    } else if (const Json facts = facts_of_answers(); facts.is_object() && facts.get_int("step", -1) >= 0) {
      header.set("step", facts.at("step"));
    }
    if (invocation_.has("again")) header.set("again", true);
    if (const Json facts = facts_of_answers(); !facts.is_null()) header.set("facts", facts);
    return header;
  }

  app::Invocation& invocation_;
  std::filesystem::path file_;
  score::Rule rule_;
  score::QuestionBook book_;
  AnswerFile found_;
  size_t checked_ = 0;
  size_t first_ = 0, last_ = SIZE_MAX;  // questions of this shard
  std::vector<int64_t> next_sample_;
  std::vector<Judged> judged_;
  std::vector<std::string> explained_;
};

Json verl_json(const std::vector<score::VerlLine>& lines) {
  Json json = Json::object();
  for (const score::VerlLine& line : lines)
    json.set(fmt::format("best@{}/mean", line.n), line.best)
        .set(fmt::format("worst@{}/mean", line.n), line.worst)
        .set(fmt::format("maj@{}/mean", line.n), line.majority);
  return json;
}

}  // namespace

score::Rule rule_of(const app::Invocation& invocation) {
  score::RuleOptions options{.allow_unfinished = invocation.has("allow-unfinished"),
                             .last_number = invocation.has("last-number"),
                             .pattern = invocation.get("pattern", ""),
                             .find = {}};
  if (!options.pattern.empty()) {
    text::Regex regex = text::Regex::compile(options.pattern, "--pattern");
    options.find = [regex](std::string_view text) -> std::optional<score::Span> {
      auto found = regex.matches(text);
      if (found.empty()) return std::nullopt;
      return score::Span{found.back().first, found.back().second};
    };
  }
  return score::make_rule(invocation.get("rule", "aime-v1"), options);
}

void check_gold(const score::Rule& rule, const score::Question& question) {
  std::string why = rule.refuses_gold(question.gold);
  SF_CHECK(why.empty(), Exit::kData, "question {}: rule {} refuses the gold {}: {}", question.id, rule.name(),
           question.gold, why);
}

void score_into(app::Invocation& invocation, const std::filesystem::path& answers, const std::filesystem::path& out) {
  Scoring scoring(invocation, answers);
  scoring.run();
  scoring.write(out);
}

double share_option(const app::Invocation& invocation, const std::string& option) {
  std::string text = invocation.get(option);
  double share = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), share);
  SF_CHECK(error == std::errc() && end == text.data() + text.size() && share >= 0 && share <= 1, Exit::kUsage,
           "--{} {}: wanted a share of 0 to 1", option, text);
  return share;
}

int64_t whole_option(const app::Invocation& invocation, const std::string& option, int64_t low, int64_t high) {
  std::string text = invocation.get(option);
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  SF_CHECK(error == std::errc() && end == text.data() + text.size() && value >= low && value <= high, Exit::kUsage,
           "--{} {}: wanted a whole number from {}", option, text, low);
  return value;
}

int eval_score(app::Invocation& invocation) {
  std::filesystem::path file = invocation.positional().front();
  double least = invocation.has("fail-under") ? share_option(invocation, "fail-under") : 0;
  if (invocation.has("output")) check_output(invocation.get("output"));
  Scoring scoring(invocation, file);
  scoring.run();
  if (invocation.has("explain")) return scoring.explain(invocation.get("explain"));
  score::Scores scores = scoring.scores();
  score::Summary summary = summarise(scores);
  const score::Majorities majorities = majorities_of(scores, summary);
  std::vector<score::VerlLine> verl;
  if (invocation.has("verl")) verl = score::verl_lines(scores);
  if (invocation.has("output") && !invocation.plan_only()) scoring.write(invocation.get("output"));
  if (invocation.json_output()) {
    Json json = scores.header;
    Json majority = Json::object();
    for (const auto& [k, value] : majorities.at) majority.set(std::to_string(k), value);
    json.set("summary", summary.to_json().set("maj_at", std::move(majority)).set("maj_draws", majorities.draws));
    if (!verl.empty()) json.set("verl", verl_json(verl));
    invocation.result(json.dump());
  } else {
    for (const std::string& line : summary_lines(scores, summary, majorities)) invocation.result(line);
    for (const score::VerlLine& line : verl)
      invocation.result(
          fmt::format("{:<12}best {:.4f}, worst {:.4f}, maj {:.4f}  1,000 draws with replacement, seed 42",
                      fmt::format("verl @{}", line.n), line.best, line.worst, line.majority));
  }
  if (summary.rate >= least) return 0;
  invocation.warn(fmt::format("pass@1 {:.4f} is under --fail-under {}", summary.rate, invocation.get("fail-under")));
  return static_cast<int>(Exit::kNo);
}

}  // namespace sf::tool
