// SPDX-License-Identifier: Apache-2.0
// A run as one self-contained page: tiles, curves, bars, facts. Nothing is filled in: what was not measured is absent
// or reads "not run".
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "report/metrics.h"

namespace sf::report {

struct Chart {
  std::string name;  // "loss"; part of the file name
  std::string svg;
  std::string note;  // one sentence below the chart, or empty
};

// What the records show, in the order of the page. `acceptance` are records as `sf-eval accept --format json` prints
// them (label, prompts, acceptance_length, positions [{accepted, tried, rate}], tokens_per_s_plain, ...).
std::vector<Chart> charts_of(const std::vector<Record>& records, const std::vector<Json>& acceptance);
std::string page_of(const std::string& name, const std::vector<Record>& records, const std::vector<Json>& acceptance);

// Reads RUN/metrics.jsonl; writes OUT and, beside it, OUT's stem + "-" + chart + ".svg" for each chart, each
// atomically. Returns the files written, the page first. kNoInput without metrics; kData if they hold no step.
std::vector<std::filesystem::path> write_report(const std::filesystem::path& run_dir, const std::filesystem::path& out,
                                                const std::vector<Json>& acceptance);

}  // namespace sf::report
