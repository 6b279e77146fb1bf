// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: one record a line, each line one write(2) in append mode, so that a reader may follow the file.
// Every record starts with v (version of the schema), event, t (seconds since 1970), rank, step; then flat fields.
//
// Events and their fields:
//   run     facts of the run, any flat fields; once a start
//   step    a window: loss, lr, grad_norm, acc_I, acceptance_rate_I (I = unrolled step, from 0), tokens, positions,
//   voids,
//           skipped; seconds on the rank that writes: time_data_s, time_forward_s, time_backward_s,
//           time_communication_s, time_optimizer_s; bytes of that rank: memory_at_rest_X and memory_peak_X, X of
//           predicted and measured
//   evaluation  held-out prompts decoded with the draft: acceptance_length and its counts; training_X: estimates
//   end     why the run ended: status, reason
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/metric_sink.h"

namespace sf::report {

class MetricsWriter : public MetricSink {
 public:
  // Opens FILE for a run that goes on after `resumed_step` steps (0: from the start; then records are still kept if
  // they belong to step 0 only). Records of later steps and a torn last line are removed first, atomically.
  static MetricsWriter open(const std::filesystem::path& file, int64_t resumed_step, int rank = 0);
  MetricsWriter(MetricsWriter&&) = default;
  ~MetricsWriter() override = default;

  void scalar(int64_t step, std::string_view name, double value) override;  // the last value of a name counts
  void flush(int64_t step) override;                                        // writes the record "step"; kIo
  // A record of another kind. `fields` is a flat object: no nested objects; lists of scalars are allowed.
  void event(std::string_view event, int64_t step, const Json& fields);

  const std::filesystem::path& file() const { return file_; }
  const std::string& torn() const { return torn_; }  // the last line that open() removed because it is no record

  std::function<double()> clock;  // seconds since 1970; replaced by tests

 private:
  MetricsWriter(UniqueFd fd, std::filesystem::path file, int rank);
  void write_record(std::string_view event, int64_t step, const Json& fields);

  UniqueFd fd_;
  std::filesystem::path file_;
  std::string torn_;
  int rank_;
  std::map<int64_t, Json> pending_;  // step -> fields so far
};

struct Record {
  std::string event;
  double t = 0;
  int64_t rank = 0, step = 0;
  Json fields;  // the whole record
};

// All records in the file's order. A last line without its newline is left out (a writer is at work or was killed); any
// other line that is no record is kData with its number. A missing file is kNoInput.
std::vector<Record> read_metrics(const std::filesystem::path& file);

}  // namespace sf::report
