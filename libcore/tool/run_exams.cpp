// SPDX-License-Identifier: Apache-2.0
#include "tool/run_exams.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "arch/decoder.h"
#include "base/error.h"
#include "base/hash.h"
#include "config/apply.h"
#include "score/shards.h"
#include "tool/answer_rows.h"
#include "tool/apply_schedule.h"
#include "tool/eval_data.h"
#include "tool/eval_merge.h"
#include "tool/eval_score.h"
#include "tool/series_check.h"
#include "tool/target_settings.h"

namespace sf::tool {

namespace fs = std::filesystem;

namespace {

constexpr size_t kKeyDigits = 16;

Candidate candidate_of(const app::Invocation& invocation, const fs::path& dir, int64_t step) {
  if (!fs::exists(dir / "adapter_config.json")) return {.target = dir, .step = step};
  SF_CHECK(invocation.has("target"), Exit::kUsage,
           "{} is an adapter, which answers beside its target: give --target DIR", dir.string());
  return {.target = invocation.get("target"), .adapter = dir, .step = step};
}

// Published checkpoints alone: a temporary sibling has another name.
std::vector<Candidate> steps_of(const app::Invocation& invocation, const fs::path& run) {
  std::vector<Candidate> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run, error)) {
    const std::string name = entry.path().filename().string();
    int64_t step = 0;
    if (!name.starts_with("step-")) continue;
    auto [end, bad] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
    if (bad == std::errc() && end == name.data() + name.size())
      found.push_back(candidate_of(invocation, entry.path(), step));
  }
  SF_CHECK(!error, Exit::kNoInput, "{}: no directory of a run: {}", run.string(), error.message());
  std::ranges::sort(found, {}, &Candidate::step);
  return found;
}

}  // namespace

std::vector<Candidate> candidates(const app::Invocation& invocation) {
  const std::string& run = invocation.positional().front();
  std::vector<Candidate> found = steps_of(invocation, run);
  if (invocation.has("target")) found.insert(found.begin(), {.target = invocation.get("target"), .step = 0});
  if (!invocation.has("nth")) return found;
  const auto nth = static_cast<size_t>(whole_option(invocation, "nth", 0, INT64_MAX));
  SF_CHECK(nth < found.size(), Exit::kNoInput, "--nth {}: {} has {} checkpoints, counted from 0", nth, run,
           found.size());
  return {found[nth]};
}

std::string checked_rule(const app::Invocation& invocation, const Exam& exam) {
  const score::Rule rule = rule_of(invocation);
  for (const score::Question& question : exam.book.questions()) check_gold(rule, question);
  return rule.digest();
}

ExamFiles files_of(const app::Invocation& invocation, const Exam& exam, const std::string& rule,
                   const Candidate& candidate) {
  const Json facts = facts_of(exam, candidate);
  const std::string key = sha256_hex(facts.dump() + exam.book.digest() + rule).substr(0, kKeyDigits);
  const std::string name = fmt::format("step-{}-{}", *candidate.step, key);
  const fs::path out = invocation.get("output");
  ExamFiles files{.whole = out / (name + ".jsonl"), .verdicts = {}, .answers = {}};
  fs::path part = name + ".jsonl";
  if (invocation.has("shard")) {
    const score::Shard shard = score::parse_shard(invocation.get("shard"));
    part = fs::path(fmt::format("{}.of-{}", name, shard.count)) / fmt::format("{}.jsonl", shard.index);
  }
  files.verdicts = out / part;
  files.answers = out / "answers" / part;
  return files;
}

namespace {

// What stands for this checkpoint, once the parts are merged if all are there.
fs::path settled(app::Invocation& invocation, const ExamFiles& files) {
  if (!files.is_part() || files.found() == files.whole) return *files.found();
  const score::Shard shard = score::parse_shard(invocation.get("shard"));
  for (int64_t i = 0; i < shard.count; ++i)
    if (const fs::path part = files.verdicts.parent_path() / fmt::format("{}.jsonl", i); !is_whole(part))
      return files.verdicts;
  merge_shards(invocation, files.verdicts.parent_path().string(), files.whole);
  return files.whole;
}

}  // namespace

void tell_verdicts(app::Invocation& invocation, int64_t step, const ExamFiles& files, bool before) {
  if (before) invocation.log(fmt::format("step {}: done already", step));
  const std::string path = settled(invocation, files).string();
  invocation.result(invocation.json_output() ? Json::object().set("step", step).set("path", path).dump() : path);
}

std::optional<int> checkpoints_done(app::Invocation& invocation) {
  check_series_output(invocation);
  const Exam exam = read_exam(invocation, true);
  const std::string rule = checked_rule(invocation, exam);
  const std::vector<Candidate> all = candidates(invocation);
  std::vector<std::pair<int64_t, ExamFiles>> files;
  bool done = !all.empty();
  for (const Candidate& candidate : all) {
    files.emplace_back(*candidate.step, files_of(invocation, exam, rule, candidate));
    done = done && files.back().second.found();
  }
  if (!done) {
    check_candidates(invocation, all);
    refuse_other_series(invocation, exam, all);
    return std::nullopt;
  }
  for (const auto& [step, one] : files) tell_verdicts(invocation, step, one, true);
  return 0;
}

double idle_option(const app::Invocation& invocation) {
  return static_cast<double>(invocation.has("idle") ? whole_option(invocation, "idle", 1, 1'000'000'000) : 3600);
}

namespace {

// What the run applies to each checkpoint as it comes. Where none is there yet, nothing can be judged of what depends
// on its vocabulary.
void apply_to_all(app::Invocation& invocation, const Exam& exam, const std::vector<Candidate>& all) {
  config::Settings& settings = invocation.settings();
  apply_threads(settings, "target.threads", invocation.ranks().local_world);
  for (const Candidate& candidate : all) {
    const ckpt::Checkpoint target = ckpt::Checkpoint::open(candidate.target);
    const text::ChatEncoder encoder = text::ChatEncoder::open(target.dir(), exam.variables);
    apply_answers(settings, target, arch::decoder_from_config(target.config()), encoder.tokenizer());
    config::Apply(settings, "every layer", "gen").word("target.compute_dtype");
  }
  for (const std::string& key : settings.unapplied())
    if (all.empty() && (key.starts_with("generate.") || key == "target.compute_dtype"))
      settings.applied(key, settings.shown(key), "checkpoints to come", "gen");
  app::settle_settings(invocation);
}

int plan_series(app::Invocation& invocation, bool may_come) {
  check_series_output(invocation);
  const Exam exam = read_exam(invocation, true);
  const std::string rule = checked_rule(invocation, exam);
  const bool is_there = !may_come || fs::exists(invocation.positional().front());
  const std::vector<Candidate> all = is_there ? candidates(invocation) : std::vector<Candidate>{};
  if (!is_there) invocation.log(fmt::format("{} is not there yet", invocation.positional().front()));
  check_candidates(invocation, all);
  apply_to_all(invocation, exam, all);
  refuse_other_series(invocation, exam, all);
  for (const Candidate& candidate : all) {
    const ExamFiles files = files_of(invocation, exam, rule, candidate);
    const std::optional<fs::path> found = files.found();
    const std::string path = found.value_or(files.verdicts).string();
    if (!found && !fs::exists(files.answers))
      check_answers_begun(files.answers, job_of(facts_of(exam, candidate), exam));
    if (invocation.json_output())
      invocation.result(Json::object()
                            .set("step", *candidate.step)
                            .set("checkpoint", candidate.adapter.value_or(candidate.target).string())
                            .set("done", found.has_value())
                            .set("path", path)
                            .dump());
    else
      invocation.result(fmt::format("{:<10} {}  {}", *candidate.step, found ? "done " : "to do", path));
  }
  return 0;
}

}  // namespace

int checkpoints_plan(app::Invocation& invocation) {
  return plan_series(invocation, false);
}

int watch_plan(app::Invocation& invocation) {
  idle_option(invocation);
  return plan_series(invocation, true);
}

}  // namespace sf::tool
