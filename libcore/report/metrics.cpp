// SPDX-License-Identifier: Apache-2.0
#include "report/metrics.h"

#include <fcntl.h>

#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/fault.h"

namespace sf::report {
namespace {

constexpr int kSchema = 1;
constexpr size_t kMostBytes = size_t{1} << 30;

double unix_seconds() {
  using namespace std::chrono;
  return static_cast<double>(duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count()) / 1e3;
}

Record record_of(std::string_view line, const std::filesystem::path& file, size_t number) {
  Json json = Json::parse(line, fmt::format("{}:{}", file.string(), number));
  try {
    int64_t version = json.at("v").as_int();
    SF_CHECK(version == kSchema, Exit::kData, "record version {}, wanted {}", version, kSchema);
    Record record{.event = json.at("event").as_string(),
                  .t = json.at("t").as_double(),
                  .rank = json.at("rank").as_int(),
                  .step = json.at("step").as_int()};
    record.fields = std::move(json);
    return record;
  } catch (Error& error) {
    error.add_context(fmt::format("{}:{}", file.string(), number));
    throw;
  }
}

// Calls visit(line, record) for each whole line.
template <typename Visit>
void each_record(const std::string& text, const std::filesystem::path& file, Visit&& visit) {
  size_t begin = 0, number = 0;
  while (true) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) return;
    std::string_view line(text.data() + begin, end - begin);
    begin = end + 1;
    ++number;
    if (!line.empty()) visit(line, record_of(line, file, number));
  }
}

bool is_json(std::string_view line) {
  try {
    Json::parse(line, "");
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Takes a last line off `text` that a kill or a full disk left unfinished, with a line break after it or without.
std::string take_torn_line(std::string& text) {
  const size_t end = text.ends_with('\n') ? text.size() - 1 : text.size();
  const size_t begin = end == 0 ? 0 : text.rfind('\n', end - 1) + 1;  // npos + 1 is 0
  std::string last = text.substr(begin, end - begin);
  if (last.empty() || (end < text.size() && is_json(last))) return "";
  text.resize(begin);
  return last;
}

// Returns a torn last line, which is dropped.
std::string keep_up_to(const std::filesystem::path& file, int64_t step) {
  if (!std::filesystem::is_regular_file(file)) return "";
  const std::string there = read_file(file, kMostBytes);
  std::string text = there, kept, torn = take_torn_line(text);
  each_record(text, file, [&](std::string_view line, const Record& record) {
    if (record.step > step && !fault("report.keep_later_records")) return;
    kept += line;
    kept += '\n';
  });
  if (kept != there) write_atomic(file, kept);
  return torn;
}

}  // namespace

MetricsWriter::MetricsWriter(UniqueFd fd, std::filesystem::path file, int rank)
    : clock(unix_seconds), fd_(std::move(fd)), file_(std::move(file)), rank_(rank) {}

MetricsWriter MetricsWriter::open(const std::filesystem::path& file, int64_t resumed_step, int rank) {
  std::string torn = keep_up_to(file, resumed_step);
  UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  int number = errno;
  SF_CHECK(fd.valid(), exit_of_errno(number, Exit::kCantCreate), "cannot open {}: {}", file.string(),
           errno_text(number));
  MetricsWriter writer(std::move(fd), file, rank);
  writer.torn_ = std::move(torn);
  return writer;
}

void MetricsWriter::scalar(int64_t step, std::string_view name, double value) {
  pending_.try_emplace(step, Json::object()).first->second.set(name, value);
}

void MetricsWriter::flush(int64_t step) {
  auto found = pending_.find(step);
  if (found == pending_.end()) return;
  write_record("step", step, found->second);
  pending_.erase(found);
}

void MetricsWriter::event(std::string_view event, int64_t step, const Json& fields) {
  write_record(event, step, fields);
}

void MetricsWriter::write_record(std::string_view event, int64_t step, const Json& fields) {
  Json record =
      Json::object().set("v", kSchema).set("event", event).set("t", clock()).set("rank", rank_).set("step", step);
  for (const auto& [name, value] : fields.as_object()) {
    SF_ASSERT(!value.is_object() && !record.contains(name));
    record.set(name, value);
  }
  write_all(fd_.get(), record.dump() + "\n", file_);
}

std::vector<Record> read_metrics(const std::filesystem::path& file) {
  std::vector<Record> records;
  each_record(read_file(file, kMostBytes), file,
              [&](std::string_view, Record record) { records.push_back(std::move(record)); });
  return records;
}

}  // namespace sf::report
