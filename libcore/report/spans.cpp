// SPDX-License-Identifier: Apache-2.0
#include "report/spans.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/fault.h"

namespace sf::report {
namespace fs = std::filesystem;
namespace {

Json json_of(const Span& span) {
  Json json = Json::object().set("kind", span.kind).set("begin", span.begin).set("end", span.end);
  if (!span.name.empty()) json.set("name", span.name).set("waited", span.waited).set("bytes", span.bytes);
  return json;
}

Span span_of(const Json& json) {
  Span span{.kind = json.at("kind").as_string(),
            .name = json.get_string("name", ""),
            .begin = json.at("begin").as_double(),
            .end = json.at("end").as_double(),
            .waited = json.get_double("waited", 0),
            .bytes = static_cast<uint64_t>(json.get_int("bytes", 0))};
  SF_CHECK(span.end >= span.begin && span.waited >= 0, Exit::kData, "a span ends at {} before it begins at {}",
           span.end, span.begin);
  return span;
}

std::vector<fs::path> span_files(const fs::path& run_dir) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(run_dir)) {
    std::string name = entry.path().filename().string();
    if (name.starts_with("spans-") && name.ends_with(".jsonl")) files.push_back(entry.path());
  }
  SF_CHECK(!files.empty(), Exit::kNoInput,
           "{} holds no spans: train with training.trace_every above 0, and for two steps at least", run_dir.string());
  return files;
}

int64_t choose(const std::map<int64_t, std::set<int64_t>>& ranks_of_step, size_t ranks, int64_t wanted,
               const fs::path& run_dir) {
  int64_t last = 0;
  std::string known;
  for (const auto& [step, recorded] : ranks_of_step) {
    if (recorded.size() == ranks) last = step;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", step);
  }
  int64_t step = wanted > 0 ? wanted : last;
  SF_CHECK(ranks_of_step.contains(step), Exit::kNoInput, "{}: {} has no spans; recorded steps: {}", run_dir.string(),
           wanted > 0 ? fmt::format("step {}", wanted) : "a step of every rank", known.empty() ? "none" : known);
  return step;
}

}  // namespace

SpanWriter::SpanWriter(fs::path file, int64_t resumed_step, int rank) : file_(std::move(file)), rank_(rank) {
  std::error_code ignored;
  if (resumed_step == 0) fs::remove(file_, ignored);
  if (fs::exists(file_, ignored)) writer_.emplace(MetricsWriter::open(file_, resumed_step, rank));
}

bool SpanWriter::has_room() const {
  std::error_code error;
  uintmax_t size = fs::file_size(file_, error);
  return error || size < kMostBytes || fault("report.endless_spans");
}

void SpanWriter::write(int64_t step, const std::vector<Span>& spans, size_t dropped) {
  if (!writer_) writer_.emplace(MetricsWriter::open(file_, step, rank_));
  for (const Span& span : spans) writer_->event("span", step, json_of(span));
  if (dropped) writer_->event("spans_dropped", step, Json::object().set("count", static_cast<int64_t>(dropped)));
}

StepSpans read_spans(const fs::path& run_dir, int64_t step) {
  std::vector<fs::path> files = span_files(run_dir);
  std::vector<Record> records;
  std::map<int64_t, std::set<int64_t>> ranks_of_step;
  for (const fs::path& file : files) {
    for (Record& record : read_metrics(file)) {
      if (record.event != "span") continue;
      ranks_of_step[record.step].insert(record.rank);
      records.push_back(std::move(record));
    }
  }
  StepSpans result{.step = choose(ranks_of_step, files.size(), step, run_dir), .ranks = {}};
  for (const Record& record : records)
    if (record.step == result.step) result.ranks[record.rank].push_back(span_of(record.fields));
  return result;
}

}  // namespace sf::report
