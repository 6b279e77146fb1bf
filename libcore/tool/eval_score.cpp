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
#include "score/plain_rules.h"
#include "score/rule.h"
#include "score/shards.h"
#include "score/strings.h"
#include "score/verl_metrics.h"
#include "text/regex.h"
#include "tool/eval_data.h"
#include "tool/eval_text.h"

namespace sf::tool {
namespace {

constexpr size_t kNamedGolds = 3;
constexpr size_t kExplained = 400;  // bytes shown on each side of the span

// Options of `score` that have no part in --explain, and those that only a file of verdicts or a record keeps.
constexpr auto kNotExplained = {"output", "fail-under", "verl", "label", "step", "again"};
constexpr auto kKept = {"label", "step", "again"};

struct Judged {
  score::ScoredAnswer answer;
  size_t line = 0;  // of the file of answers
  score::Span span;
  std::string reason;
};

class Scoring {
 public:
  Scoring(app::Invocation& invocation, std::filesystem::path file, HalfLine half)
      : invocation_(invocation), file_(std::move(file)), half_(half), rule_(rule_of(invocation)) {
    if (invocation.has("questions")) book_ = read_questions(invocation, invocation.get("questions"), half);
    check_golds();
    if (!invocation.has("shard")) return;
    SF_CHECK(book_.size() > 0, Exit::kUsage, "--shard needs --questions: a shard is a part of them");
    std::tie(first_, last_) = range_of(score::parse_shard(invocation.get("shard")), book_.size());
  }

  void run() {
    found_ = read_answers(invocation_, file_, half_, book_,
                          [&](score::AnswerRow row, size_t question) { judge(std::move(row), question); });
    check_golds();
    say_unread_golds();
    check_step();
    say_given_up();
    SF_CHECK(!judged_.empty() || (invocation_.has("shard") && first_ == last_), Exit::kData, "{}: holds no answer{}",
             file_.string(), invocation_.has("shard") ? " of shard " + invocation_.get("shard") : "");
    std::stable_sort(judged_.begin(), judged_.end(), [](const Judged& a, const Judged& b) {
      return std::pair(a.answer.question, a.answer.sample) < std::pair(b.answer.question, b.answer.sample);
    });
    check_completeness();
  }

  int explain(const std::string& what) const {
    SF_CHECK(!explained_.empty(), Exit::kUsage, "--explain {}: there is no such answer{}; an answer is ID or ID/SAMPLE",
             what, near_ids(what));
    if (!invocation_.json_output()) {
      say_lines(invocation_, explained_);
      return 0;
    }
    for (const std::string& record : explained_) invocation_.result(record);
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

  // Golds that only their own text equals: every other answer is wrong there, right or not.
  void say_unread_golds() const {
    size_t count = 0;
    std::vector<std::string> first;
    for (size_t i = first_; i < std::min(last_, book_.size()); ++i) {
      const score::Question& question = book_.questions()[i];
      if (rule_.reads_gold(question.gold)) continue;
      if (count++ < kNamedGolds) first.push_back(question.id);
    }
    if (count > 0)
      invocation_.warn(fmt::format("rule {} cannot read {} of {} golds, of {}{}: only their own text is correct there",
                                   rule_.name(), count, std::min(last_, book_.size()) - first_, fmt::join(first, ", "),
                                   count > first.size() ? ", ..." : ""));
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
    if (verdict.reason == score::kGaveUp && gave_up_++ == 0)
      first_given_up_ = fmt::format("{}:{}: the answer to {}", file_.string(), row.line, asked.id);
    judged_.push_back({{.question = static_cast<uint32_t>(question),
                        .sample = static_cast<int32_t>(sample),
                        .tokens = static_cast<int32_t>(std::clamp<int64_t>(row.tokens, -1, INT32_MAX)),
                        .outcome = verdict.outcome,
                        .cut = row.cut,
                        .normal = std::move(verdict.normal)},
                       row.line,
                       verdict.span,
                       std::move(verdict.reason)});
  }

  void say_given_up() const {
    if (gave_up_ > 0)
      invocation_.warn(fmt::format("{}{} took --pattern more steps than a match may: no answer, reason {}",
                                   first_given_up_, gave_up_ > 1 ? fmt::format(" and {} others", gave_up_ - 1) : "",
                                   score::kGaveUp));
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
    explained_.push_back(fmt::format("question    {}, sample {}", asked.id, sample));
    explained_.push_back(fmt::format("rule        {} version {}", rule_.name(), rule_.version()));
    explained_.push_back(fmt::format("gold        {}", asked.gold));
    explained_.push_back(fmt::format("outcome     {} ({})", name_of(verdict.outcome), verdict.reason));
    explained_.push_back("found       " + (verdict.span.size() > 0
                                               ? fmt::format("bytes {} to {}", verdict.span.begin, verdict.span.end)
                                               : std::string("nothing")));
    explained_.push_back("normal      " + verdict.normal);
    // Lines of the text stand in a column of their own, where they cannot pass for the lines above.
    std::string before = "text        ";
    for (const std::string& line : score::split(marked(answer.text, shown, kExplained), "\n")) {
      explained_.push_back(before + line);
      before.assign(before.size(), ' ');
    }
  }

  // Answers of several checkpoints in one file would be one checkpoint's.
  void check_step() const {
    const std::vector<int64_t>& steps = found_.steps;
    SF_CHECK(steps.size() <= 1 || invocation_.has("step"), Exit::kData,
             "{}: holds answers of steps {} and {}; give each step a file of its own{}", file_.string(), steps.front(),
             steps.back(), half_ == HalfLine::kRefuse ? "" : ", or say with --step which one they are");
  }

  void check_completeness() {
    std::vector<int64_t> count(book_.size(), 0);
    for (size_t i = 0; i < judged_.size(); ++i) {
      const score::ScoredAnswer& answer = judged_[i].answer;
      ++count[answer.question];
      bool twice =
          i > 0 && judged_[i - 1].answer.question == answer.question && judged_[i - 1].answer.sample == answer.sample;
      SF_CHECK(!twice, Exit::kData, "{}:{}: sample {} of question {} is in line {} already", file_.string(),
               judged_[i].line, answer.sample, book_.questions()[answer.question].id, judged_[i - 1].line);
    }
    const int64_t promised = std::max<int64_t>(1, number_of_facts("samples", 1));
    auto lacks = [&](int64_t found) { return found < promised; };
    auto begin = count.begin() + static_cast<std::ptrdiff_t>(first_);
    auto end = count.begin() + static_cast<std::ptrdiff_t>(std::min(last_, count.size()));
    auto missing = static_cast<size_t>(std::count_if(begin, end, lacks));
    if (missing == 0) return;
    size_t first = static_cast<size_t>(std::find_if(begin, end, lacks) - count.begin());
    std::string text = fmt::format("{} of {} questions have {} in {}, first {}", missing, end - begin,
                                   promised == 1 ? "no answer" : fmt::format("fewer than {} answers", promised),
                                   file_.string(), book_.questions()[first].id);
    SF_CHECK(invocation_.has("partial"), Exit::kData, "{}{}", text,
             half_ == HalfLine::kRefuse ? "" : "; --partial scores what there is");
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
    } else if (const int64_t step = number_of_facts("step", -1); step >= 0) {
      header.set("step", step);
    }
    if (invocation_.has("again")) header.set("again", true);
    if (!found_.facts.is_null()) header.set("facts", found_.facts);
    return header;
  }

  int64_t number_of_facts(std::string_view name, int64_t otherwise) const {
    try {
      return found_.facts.get_int(name, otherwise);
    } catch (Error& error) {
      error.add_context(file_.string() + ":1: facts");
      throw;
    }
  }

  app::Invocation& invocation_;
  std::filesystem::path file_;
  HalfLine half_;
  score::Rule rule_;
  score::QuestionBook book_;
  AnswerFile found_;
  size_t checked_ = 0;
  size_t first_ = 0, last_ = SIZE_MAX;  // questions of this shard
  std::vector<int64_t> next_sample_;
  std::vector<Judged> judged_;
  std::vector<std::string> explained_;
  size_t gave_up_ = 0;  // answers on which the pattern took too many steps
  std::string first_given_up_;
};

void refuse_idle_options(const app::Invocation& invocation) {
  if (invocation.has("explain"))
    for (const char* option : kNotExplained)
      SF_CHECK(!invocation.has(option), Exit::kUsage, "--explain shows answers alone: it has no use for --{}", option);
  if (invocation.has("output") || invocation.json_output()) return;
  for (const char* option : kKept)
    SF_CHECK(!invocation.has(option), Exit::kUsage, "--{} is kept beside verdicts: give -o FILE or --format json",
             option);
}

Json verl_json(const std::vector<score::VerlLine>& lines) {
  Json json = Json::object();
  for (const score::VerlLine& line : lines)
    json.set(fmt::format("best@{}/mean", line.n), line.best)
        .set(fmt::format("worst@{}/mean", line.n), line.worst)
        .set(fmt::format("maj@{}/mean", line.n), line.majority);
  return json;
}

}  // namespace

namespace {

text::Regex pattern_of(const std::string& pattern) {
  try {
    return text::Regex::compile(pattern, "--pattern");
  } catch (const Error& error) {
    fail(Exit::kUsage, "{}", error.what());
  }
}

}  // namespace

score::Rule rule_of(const app::Invocation& invocation) {
  score::RuleOptions options{.allow_unfinished = invocation.has("allow-unfinished"),
                             .last_number = invocation.has("last-number"),
                             .pattern = invocation.get("pattern", ""),
                             .find = {}};
  if (!options.pattern.empty()) {
    const text::Regex regex = pattern_of(options.pattern);
    options.find = [regex](std::string_view text) -> std::optional<score::Span> {
      const auto found = regex.last_match(text);
      if (!found) return std::nullopt;
      return score::Span{found->first, found->second};
    };
  }
  return score::make_rule(invocation.get("rule", "aime-v1"), options);
}

void check_gold(const score::Rule& rule, const score::Question& question) {
  std::string why = rule.refuses_gold(question.gold);
  SF_CHECK(why.empty(), Exit::kData, "{}: question {}: rule {} refuses the gold {}: {}", question.origin, question.id,
           rule.name(), question.gold, why);
}

void score_into(app::Invocation& invocation, const std::filesystem::path& answers, const std::filesystem::path& out) {
  Scoring scoring(invocation, answers, HalfLine::kRefuse);
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
  refuse_idle_options(invocation);
  if (invocation.has("output")) check_verdicts_output(invocation.get("output"));
  Scoring scoring(invocation, file, half_line(invocation.has("repair")));
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
    std::vector<std::string> lines = summary_lines(scores, summary, majorities);
    for (const score::VerlLine& line : verl)
      lines.push_back(fmt::format("{:<12}best {:.4f}, worst {:.4f}, maj {:.4f}  1,000 draws with replacement, seed 42",
                                  fmt::format("verl @{}", line.n), line.best, line.worst, line.majority));
    say_lines(invocation, lines);
  }
  const std::string part = scores.coverage();
  if (invocation.has("fail-under") && !part.empty())
    invocation.warn(fmt::format("--fail-under looks at {} alone", part));
  if (summary.rate >= least || summary.answers == 0) return 0;
  invocation.warn(fmt::format("pass@1 {:.4f} is under --fail-under {}", summary.rate, invocation.get("fail-under")));
  return static_cast<int>(Exit::kNo);
}

}  // namespace sf::tool
