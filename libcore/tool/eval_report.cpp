// SPDX-License-Identifier: Apache-2.0
#include "tool/eval_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "app/terminal.h"
#include "base/error.h"
#include "base/file.h"
#include "report/eval_page.h"
#include "report/page.h"
#include "tool/eval_curve.h"
#include "tool/eval_data.h"
#include "tool/eval_score.h"
#include "tool/eval_series.h"
#include "tool/eval_text.h"

namespace sf::tool {
namespace {

constexpr size_t kMostCurve = size_t{16} << 20;

std::string header_text(const score::Scores& scores, const char* key) {
  const Json* value = scores.header.find(key);
  return value ? value->is_string() ? value->as_string() : value->dump() : "";
}

// Verdicts of one rule, and those of other rules over the same answers.
struct Sorted {
  std::vector<score::Scores> main, others;
};

Sorted by_rule(std::vector<score::Scores> files, const std::string& wanted) {
  std::string rule = wanted;
  for (const score::Scores& scores : files)
    if (rule.empty() || (wanted.empty() && header_text(scores, "rule") == "aime-v1"))
      rule = header_text(scores, "rule");
  Sorted sorted;
  for (score::Scores& scores : files)
    (header_text(scores, "rule") == rule ? sorted.main : sorted.others).push_back(std::move(scores));
  SF_CHECK(!sorted.main.empty(), Exit::kUsage, "--rule {}: there are no verdicts of it", rule);
  for (const score::Scores& other : sorted.others) {
    bool same = std::any_of(sorted.main.begin(), sorted.main.end(), [&](const score::Scores& main) {
      return header_text(main, "answers_digest") == header_text(other, "answers_digest") &&
             main.answers.size() == other.answers.size();
    });
    SF_CHECK(same, Exit::kProtocol,
             "verdicts of rule {} stand beside those of {}, over other answers: they cannot be compared; keep rules in "
             "directories of their own, "
             "or score the same answers by both",
             header_text(other, "rule"), rule);
  }
  return sorted;
}

// Share of answers that two sets of verdicts over the same answers judge alike.
double alike(const score::Scores& a, const score::Scores& b) {
  size_t same = 0;
  for (size_t i = 0; i < a.answers.size(); ++i)
    same += (a.answers[i].outcome == score::Outcome::kCorrect) == (b.answers[i].outcome == score::Outcome::kCorrect);
  return a.answers.empty() ? 1 : static_cast<double>(same) / static_cast<double>(a.answers.size());
}

struct Agreement {
  std::vector<std::string> rules;
  std::vector<std::vector<double>> shares;
};

// Of the last checkpoint that other rules have judged too.
Agreement agreement_of(const EvalSeries& series, const std::vector<score::Scores>& others) {
  Agreement result;
  for (size_t i = series.entries.size(); i-- > 0;) {
    const score::Scores& main = series.entries[i].scores;
    std::vector<const score::Scores*> same = {&main};
    for (const score::Scores& other : others)
      if (header_text(other, "answers_digest") == header_text(main, "answers_digest") &&
          other.answers.size() == main.answers.size())
        same.push_back(&other);
    if (same.size() < 2) continue;
    for (const score::Scores* a : same) {
      result.rules.push_back(header_text(*a, "rule"));
      result.shares.emplace_back();
      for (const score::Scores* b : same) result.shares.back().push_back(alike(*a, *b));
    }
    return result;
  }
  return result;
}

void add_lengths(report::EvalPage& page, const EvalEntry& entry) {
  page.tokens_of = entry.label;
  for (const score::ScoredAnswer& answer : entry.scores.answers)
    if (answer.tokens >= 0)
      (answer.outcome == score::Outcome::kCorrect ? page.right_tokens : page.other_tokens).push_back(answer.tokens);
}

void add_facts(report::EvalPage& page, const EvalSeries& series) {
  for (const auto& [key, value] : series.entries[0].scores.header.as_object())
    if (key != "kind" && key != "facts" && key != "step" && key != "label" && key != "answers_digest")
      page.facts.emplace_back(key, value.is_string() ? value.as_string() : value.dump());
  for (const EvalEntry& entry : series.entries) {
    page.facts.emplace_back(entry.label + ": answers", header_text(entry.scores, "answers_digest"));
    const Json* facts = entry.scores.header.find("facts");
    if (!facts || !facts->is_object()) continue;
    for (const auto& [key, value] : facts->as_object())
      page.facts.emplace_back(fmt::format("{}: {}", entry.label, key),
                              value.is_string() ? value.as_string() : value.dump());
  }
}

// The headline is an original's: a re-evaluation stands beside it, never in its place.
const EvalEntry& last_original(const EvalSeries& series) {
  for (size_t i = series.entries.size(); i-- > 0;)
    if (!series.entries[i].again && (i > 0 || !series.outside)) return series.entries[i];
  return series.entries.back();
}

std::string count_text(const EvalSeries& series) {
  const auto again = std::ranges::count_if(series.entries, [](const EvalEntry& entry) { return entry.again; });
  return fmt::format("{} checkpoints", std::ssize(series.entries) - again) +
         (again > 0 ? fmt::format(", {} evaluated again", again) : "");
}

report::EvalPage page_of_series(const EvalSeries& series, const Agreement& agreement, const std::string& title) {
  report::EvalPage page;
  page.title = title;
  const EvalEntry& last = last_original(series);
  const std::string part = last.scores.coverage();
  page.subtitle = fmt::format(
      "rule {} version {}, {}, {}", header_text(last.scores, "rule"), header_text(last.scores, "rule_version"),
      part.empty() ? thousands(last.summary.questions) + " questions" : part, count_text(series));
  page.columns = series_columns(series);
  page.questions = series.entries[series.reference].scores.ids;
  for (size_t i = 0; i < score::kOutcomes; ++i) {
    std::string word(name_of(static_cast<score::Outcome>(i)));
    std::replace(word.begin(), word.end(), '_', ' ');
    page.outcomes.push_back(word);
  }
  for (const EvalEntry& entry : series.entries) {
    report::EvalPoint point;
    point.label = entry.label;
    if (entry.step) point.step = static_cast<double>(*entry.step);
    point.again = entry.again;
    point.rate = entry.summary.rate;
    point.low = entry.summary.interval.low;
    point.high = entry.summary.interval.high;
    if (entry.scores.ids == page.questions)
      for (const score::Tally& tally : entry.summary.tallies) point.questions.push_back(tally.rate());
    for (int64_t count : entry.summary.outcomes)
      point.outcomes.push_back(static_cast<double>(count) /
                               static_cast<double>(std::max<int64_t>(1, entry.summary.answers)));
    point.cells = series_cells(series, entry);
    page.points.push_back(std::move(point));
  }
  page.tiles = {
      {fmt::format("{} %", percent(last.summary.rate)),
       fmt::format("pass@1, {} (95 %: {})", last.label, percent_range(last.summary.interval))},
      {fmt::format("{}/{}", thousands(last.summary.count(score::Outcome::kCorrect)), thousands(last.summary.answers)),
       "correct answers"},
      {thousands(last.summary.cut), "cut by the length limit"}};
  if (last.paired)
    page.tiles.emplace_back(fmt::format("{:+.1f}", 100 * last.paired->difference),
                            "points against " + series.entries[series.reference].label);
  add_lengths(page, last);
  page.rules = agreement.rules;
  page.agreement = agreement.shares;
  add_facts(page, series);
  page.notes = series.notes;
  if (page.questions.size() > report::kMostGridRows)
    page.notes.push_back(fmt::format("no grid of questions: {} are more than the {} that a picture shows",
                                     thousands(std::ssize(page.questions)), report::kMostGridRows));
  return page;
}

void write_out(app::Invocation& invocation, const report::EvalPage& page) {
  if (!invocation.has("output") || invocation.plan_only()) return;
  std::filesystem::path out = invocation.get("output");
  for (const std::filesystem::path& file : report::write_page(report::page_of(page), report::charts_of(page), out))
    invocation.log("wrote " + file.string());
}

void show(app::Invocation& invocation, const std::vector<std::string>& lines, const Json& json) {
  if (invocation.json_output()) return invocation.result(json.dump());
  say_lines(invocation, lines);
}

int passes(app::Invocation& invocation, double rate, const std::string& part = "") {
  if (!invocation.has("fail-under")) return 0;
  if (!part.empty()) invocation.warn(fmt::format("--fail-under looks at {} alone", part));
  double least = share_option(invocation, "fail-under");
  if (rate >= least) return 0;
  invocation.warn(fmt::format("pass@1 {:.4f} is under --fail-under {}", rate, invocation.get("fail-under")));
  return static_cast<int>(Exit::kNo);
}

int report_curve(app::Invocation& invocation, const std::filesystem::path& file) {
  refuse_options(invocation, {"against", "rule", "repair"}, "verdicts", file);
  SF_CHECK(invocation.has("of"), Exit::kUsage, "a curve needs --of, the number of answers each value is a share of");
  std::vector<CurvePoint> points =
      read_curve(read_file(file, kMostCurve), file.string(), whole_option(invocation, "of", 1, 1'000'000'000));
  write_out(invocation, curve_page(points, file.stem().string()));
  show(invocation, curve_lines(points), curve_json(points));
  return passes(invocation, points.back().share());
}

size_t columns() {
  return static_cast<size_t>(app::terminal_columns(STDOUT_FILENO));
}

std::vector<std::string> agreement_lines(const Agreement& agreement) {
  std::vector<std::string> lines;
  if (agreement.rules.size() < 2) return lines;
  lines.push_back("agreement between rules, % of the same answers");
  std::string numbers = fmt::format("{:<22}", "");
  for (size_t i = 0; i < agreement.rules.size(); ++i) numbers += fmt::format("{:>7}", i + 1);
  lines.push_back(numbers);
  for (size_t i = 0; i < agreement.rules.size(); ++i) {
    std::string line = fmt::format("{:>2} {:<19}", i + 1, agreement.rules[i]);
    for (double share : agreement.shares[i]) line += fmt::format("{:>7}", percent(share));
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

void refuse_options(const app::Invocation& invocation, std::initializer_list<const char*> options, const char* whose,
                    const std::filesystem::path& path) {
  for (const char* option : options)
    SF_CHECK(!invocation.has(option), Exit::kUsage, "--{} belongs to the report of {}, and {} is none", option, whose,
             path.string());
}

bool holds_verdicts(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return std::filesystem::exists(path, ignored);
  return !std::filesystem::exists(path / "metrics.jsonl", ignored) && has_scores(path);
}

int report_verdicts(app::Invocation& invocation, const std::filesystem::path& path) {
  refuse_options(invocation, {"before", "after", "trace", "step"}, "a run", path);
  if (invocation.has("output")) {
    check_output(invocation.get("output"));
    refuse_among_inputs(invocation.get("output"), path.string());
  }
  if (path.extension() == ".csv") return report_curve(invocation, path);
  refuse_options(invocation, {"of"}, "a curve", path);
  say_passed_over(invocation, path);
  Sorted sorted = by_rule(read_all_scores(path, invocation.has("repair")), invocation.get("rule", ""));
  EvalSeries series = series_of(std::move(sorted.main), invocation.get("against", ""));
  Agreement agreement = agreement_of(series, sorted.others);
  std::filesystem::path whole = std::filesystem::weakly_canonical(path);
  write_out(invocation, page_of_series(series, agreement, whole.filename().string()));
  std::vector<std::string> lines = series_lines(series, columns());
  for (const std::string& line : agreement_lines(agreement)) lines.push_back(line);
  Json json = series_json(series);
  if (!agreement.rules.empty()) {
    Json rows = Json::object();
    for (size_t i = 0; i < agreement.rules.size(); ++i) {
      Json row = Json::object();
      for (size_t j = 0; j < agreement.rules.size(); ++j) row.set(agreement.rules[j], agreement.shares[i][j]);
      rows.set(agreement.rules[i], std::move(row));
    }
    json.set("agreement", std::move(rows));
  }
  show(invocation, lines, json);
  return passes(invocation, last_original(series).summary.rate, last_original(series).scores.coverage());
}

namespace {

// What `compare` compares, the reference first: the file of --against, which is not compared with itself where it lies
// in the directory of the others; or one of the others, named by label or step.
std::vector<score::Scores> compared(const app::Invocation& invocation) {
  const std::filesystem::path against = invocation.get("against"), path = invocation.positional().front();
  const bool repair = invocation.has("repair");
  std::error_code ignored;
  std::vector<score::Scores> others = read_all_scores(path, repair), files;
  if (!std::filesystem::exists(against, ignored)) {
    auto named = std::ranges::find_if(others, [&](const score::Scores& scores) {
      return scores.label() == against || scores.label() == "step " + against.string();
    });
    if (named != others.end()) {
      std::rotate(others.begin(), named, named + 1);
      return others;
    }
  }
  if (!std::filesystem::exists(against, ignored)) {
    std::vector<std::string> labels;
    for (const score::Scores& scores : others) labels.push_back(scores.label());
    fail(Exit::kNoInput, "--against {}: there is no such file, and {} holds no such verdicts; it has {}",
         against.string(), path.string(), fmt::join(labels, ", "));
  }
  files = read_all_scores(against, repair);
  SF_CHECK(files.size() == 1, Exit::kUsage, "--against {} holds {} files of verdicts; name one", against.string(),
           files.size());
  for (score::Scores& scores : others)
    if (others.size() == 1 || !std::filesystem::equivalent(scores.origin, files[0].origin, ignored))
      files.push_back(std::move(scores));
  return files;
}

}  // namespace

int eval_compare(app::Invocation& invocation) {
  say_passed_over(invocation, invocation.positional().front());
  std::vector<score::Scores> files = compared(invocation);
  files[0].header.set("label", files[0].label() + " (reference)");
  EvalSeries series = series_of(std::move(files), "", true);
  show(invocation, series_lines(series, columns()), series_json(series));
  return passes(invocation, last_original(series).summary.rate, last_original(series).scores.coverage());
}

}  // namespace sf::tool
