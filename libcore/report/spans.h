// SPDX-License-Identifier: Apache-2.0
// RUN/spans-RANK.jsonl: what a rank did when, of a few steps, as records of shardforge(7); and a step's picture.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/metrics.h"

namespace sf::report {

struct Span {
  std::string kind;           // "data", "compute", "optimizer", "publish", "gather", "reduce", "exchange"
  std::string name;           // a call's tag, or empty
  double begin = 0, end = 0;  // seconds of the host's monotonic clock
  double waited = 0;          // of a call: seconds spent waiting for other ranks
  uint64_t bytes = 0;         // of a call: sent by this rank
};

class SpanWriter {
 public:
  static constexpr uintmax_t kMostBytes = uintmax_t{16} << 20;  // once a file is larger, no step is added

  // Of an earlier run in this place only spans of steps up to `resumed_step` stay; 0: none. The file is made by the
  // first step that is written.
  SpanWriter(std::filesystem::path file, int64_t resumed_step, int rank);
  bool has_room() const;
  void write(int64_t step, const std::vector<Span>& spans, size_t dropped);

 private:
  std::filesystem::path file_;
  int rank_;
  std::optional<MetricsWriter> writer_;
};

// Spans of one step, one list a rank.
struct StepSpans {
  int64_t step = 0;
  std::map<int64_t, std::vector<Span>> ranks;
};

// Reads all RUN/spans-*.jsonl. `step`: that one, or 0 for the last that every rank has recorded. kNoInput if there are
// no such files or no such step, naming the steps there are.
StepSpans read_spans(const std::filesystem::path& run_dir, int64_t step);

// The step as a chart: a row a rank, from the step's first instant; a call's wait is drawn first, then its work.
// Neighbours of one kind that are too close to tell apart are drawn as one.
std::string timeline(const StepSpans& spans);

}  // namespace sf::report
