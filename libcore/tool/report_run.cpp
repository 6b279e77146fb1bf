// SPDX-License-Identifier: Apache-2.0
#include "tool/report_run.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "report/report.h"

namespace sf::tool {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;

// "before" first, "after" last, the rest by name in between.
int rank_of(const std::string& stem) {
  if (stem.find("before") != std::string::npos) return 0;
  return stem.find("after") != std::string::npos ? 2 : 1;
}

std::vector<std::filesystem::path> found_beside(const std::filesystem::path& run) {
  for (const std::filesystem::path& dir : {run, std::filesystem::weakly_canonical(run).parent_path()}) {
    std::vector<std::filesystem::path> files;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(dir, ignored)) {
      std::string name = entry.path().filename().string();
      if (name.rfind("accept", 0) == 0 && entry.path().extension() == ".json") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) {
      return std::pair(rank_of(a.stem().string()), a) < std::pair(rank_of(b.stem().string()), b);
    });
    if (!files.empty()) return files;
  }
  return {};
}

// "accept-before.json" is labelled "before".
std::string label_of(const std::filesystem::path& file) {
  std::string stem = file.stem().string();
  size_t dash = stem.find_first_of("-_.");
  return dash == std::string::npos || dash + 1 == stem.size() ? stem : stem.substr(dash + 1);
}

Json acceptance_record(const std::filesystem::path& file) {
  Json record = Json::parse(read_file(file, kMostBytes), file.string());
  SF_CHECK(record.is_object() && record.contains("acceptance_length"), Exit::kData,
           "{}: no record of sf-eval accept: wanted an object with acceptance_length", file.string());
  if (record.contains("label")) return record;
  Json labelled = Json::object().set("label", label_of(file));
  for (const auto& [key, value] : record.as_object()) labelled.set(key, value);
  return labelled;
}

}  // namespace

int report_run(app::Invocation& invocation) {
  std::filesystem::path run = invocation.positional().front();
  SF_CHECK(std::filesystem::is_directory(run), Exit::kNoInput, "{} is no directory of a run", run.string());
  std::filesystem::path out = invocation.get("output", (run / "report.html").string());
  std::vector<std::filesystem::path> sources;
  for (const std::string& file : invocation.all("acceptance")) sources.emplace_back(file);
  if (sources.empty()) sources = found_beside(run);
  std::vector<Json> acceptance;
  for (const auto& file : sources) {
    acceptance.push_back(acceptance_record(file));
    invocation.log("acceptance from " + file.string());
  }
  if (invocation.plan_only()) {
    report::page_of(run.filename().string(), report::read_metrics(run / "metrics.jsonl"), acceptance);
    invocation.result("would write " + out.string());
    return 0;
  }
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
