// SPDX-License-Identifier: Apache-2.0
#include "tool/report_run.h"

#include <charconv>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "report/report.h"
#include "report/spans.h"
#include "report/svg.h"
#include "tool/eval_report.h"

namespace sf::tool {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;

using Labelled = std::pair<std::string, std::filesystem::path>;

std::vector<Labelled> sources_of(const app::Invocation& invocation, const std::filesystem::path& run) {
  std::vector<Labelled> sources;
  for (const char* label : {"before", "after"})
    if (invocation.has(label)) sources.emplace_back(label, invocation.get(label));
  if (!sources.empty()) return sources;
  for (const std::filesystem::path& dir : {run, std::filesystem::weakly_canonical(run).parent_path()}) {
    for (const char* label : {"before", "after"}) {
      std::filesystem::path file = dir / (std::string(label) + ".json");
      if (std::filesystem::is_regular_file(file)) sources.emplace_back(label, file);
    }
    if (!sources.empty()) break;
  }
  return sources;
}

Json acceptance_record(const std::string& label, const std::filesystem::path& file) {
  Json record = Json::parse(read_file(file, kMostBytes), file.string());
  SF_CHECK(record.is_object() && record.contains("acceptance_length"), Exit::kData,
           "{}: no record of sf-eval accept: wanted an object with acceptance_length", file.string());
  Json labelled = Json::object().set("label", label);
  for (const auto& [key, value] : record.as_object()) labelled.set(key, value);
  return labelled;
}

int64_t wanted_step(const app::Invocation& invocation) {
  if (!invocation.has("step")) return 0;
  std::string text = invocation.get("step");
  int64_t step = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  SF_CHECK(error == std::errc() && end == text.data() + text.size() && step > 0, Exit::kUsage,
           "--step {}: wanted a whole number from 1", text);
  return step;
}

int report_trace(app::Invocation& invocation, const std::filesystem::path& run) {
  std::filesystem::path out = invocation.get("output", (run / "trace.svg").string());
  report::StepSpans spans = report::read_spans(run, wanted_step(invocation));
  std::string picture = report::standalone(report::timeline(spans));
  if (invocation.plan_only()) {
    invocation.result("would write " + out.string());
    return 0;
  }
  refuse_to_replace(out);
  write_atomic(out, picture);
  Json json = Json::object().set("picture", out.string()).set("step", spans.step);
  json.set("ranks", static_cast<int64_t>(spans.ranks.size()));
  invocation.result(invocation.json_output() ? json.dump() : out.string());
  return 0;
}

}  // namespace

int report_run(app::Invocation& invocation) {
  std::filesystem::path run = invocation.positional().front();
  if (holds_verdicts(run)) return report_verdicts(invocation, run);
  SF_CHECK(std::filesystem::is_directory(run), Exit::kNoInput, "{} is no directory of a run", run.string());
  refuse_options(invocation, {"against", "rule", "fail-under", "repair"}, "verdicts", run);
  refuse_options(invocation, {"of"}, "a curve", run);
  if (invocation.has("trace")) {
    for (const char* option : {"before", "after"})
      SF_CHECK(!invocation.has(option), Exit::kUsage, "--{} belongs to the page of a run, not to --trace", option);
    return report_trace(invocation, run);
  }
  SF_CHECK(!invocation.has("step"), Exit::kUsage, "--step chooses what --trace draws; give both");
  std::filesystem::path out = invocation.get("output", (run / "report.html").string());
  std::vector<Json> acceptance;
  for (const auto& [label, file] : sources_of(invocation, run)) {
    acceptance.push_back(acceptance_record(label, file));
    invocation.log(fmt::format("acceptance {} from {}", label, file.string()));
  }
  if (invocation.plan_only()) {
    report::page_of(run.filename().string(), report::read_metrics(run / "metrics.jsonl"), acceptance);
    invocation.result("would write " + out.string());
    return 0;
  }
  refuse_to_replace(out);
  std::vector<std::filesystem::path> files = report::write_report(run, out, acceptance);
  if (!invocation.json_output()) {
    invocation.result(files.front().string());
    return 0;
  }
  Json charts = Json::array();
  for (size_t i = 1; i < files.size(); ++i) charts.push(files[i].string());
  invocation.result(Json::object().set("page", files.front().string()).set("charts", std::move(charts)).dump());
  return 0;
}

}  // namespace sf::tool
