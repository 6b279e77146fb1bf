// SPDX-License-Identifier: Apache-2.0
#include "tool/answer_rows.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/error.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/present.h"
#include "tool/facts.h"
#include "tool/outputs.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;
using Rows = std::map<std::string, std::string>;

std::string key_of(const Json& row) {
  const Json* sample = row.find("sample");
  return sample ? fmt::format("{}/{}", row.at("id").as_string(), sample->as_int()) : row.at("id").as_string();
}

std::string owner_text(const std::string& who) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return fmt::format("{} (pid {} on {})", who, getpid(), host);
}

// Of those who wrote the file, the last.
std::string owner_of(const fs::path& partial) {
  const std::string text = read_file(partial);
  constexpr std::string_view kBy = "{\"by\":";
  size_t at = text.rfind(kBy), end = text.find('\n', at);
  if (at == std::string::npos || end == std::string::npos) return "another run";
  return Json::parse(text.substr(at, end - at), partial.string()).get_string("by", "another run");
}

std::string digest_of(const Json& job) {
  return sha256_hex(job.dump());
}

// The first line: which job began the rows.
void check_job(const fs::path& partial, const Json& line, const Json& job) {
  if (line.get_string("job", "") == digest_of(job)) return;
  const Json* facts = line.find("facts");
  const std::string difference = facts ? facts_difference(*facts, job) : "";
  SF_CHECK(facts || line.contains("job"), Exit::kData, "{}:1: does not say what its answers were made with",
           partial.string());
  fail(Exit::kProtocol, "{} was begun with other settings{}; go on with those, remove it, or choose another -o",
       partial.string(), difference.empty() ? "" : ": " + difference);
}

// A row as it lies in FILE.partial: with its hash, so that what was damaged since is not taken for an answer.
constexpr std::string_view kBeforeRow = R"({"xxh3":"0123456789abcdef","row":)";

std::string with_hash(std::string_view row) {
  return fmt::format(R"({{"xxh3":"{}","row":{}}})", hex64(xxh3_64(row)), row) + "\n";
}

// `line` as parsed from `text`.
void take_row(const Json& line, std::string_view text, Rows& rows) {
  const Json* row = line.find("row");
  SF_CHECK(row, Exit::kData, "neither a row with its hash nor who wrote it; remove the file, or choose another -o");
  std::string key = key_of(*row);
  text.remove_prefix(std::min(text.size(), kBeforeRow.size()));
  text.remove_suffix(text.empty() ? 0 : 1);
  SF_CHECK(hex64(xxh3_64(text)) == line.get_string("xxh3", "") || fault("tool.any_row"), Exit::kProtocol,
           "row {} is not what was written (its XXH3 differs); without this line it is answered again", key);
  rows[std::move(key)] = text;
}

// The bytes of its whole lines; a torn one behind them is nobody's. kProtocol if another job began it, or naming a row
// that was damaged.
size_t read_rows(const fs::path& partial, const Json& job, Rows& rows) {
  const std::string text = read_file(partial);
  const size_t last = text.rfind('\n'), whole = last == std::string::npos ? 0 : last + 1;
  size_t number = 0;
  for (size_t at = 0; at < whole;) {
    const size_t end = text.find('\n', at);
    const std::string_view text_of_line = std::string_view(text).substr(at, end - at);
    const std::string where = fmt::format("{}:{}", partial.string(), ++number);
    const Json line = Json::parse(text_of_line, where);
    try {
      if (number == 1)
        check_job(partial, line, job);
      else if (!line.contains("by"))
        take_row(line, text_of_line, rows);
    } catch (Error& error) {
      if (!error.message().starts_with(partial.string())) error.add_context(where);
      throw;
    }
    at = end + 1;
  }
  return whole;
}

std::string job_line(const Json& job) {
  return Json::object().set("job", digest_of(job)).set("facts", job).dump() + "\n";
}

// FILE.partial.RANK, of whatever ranks there were.
std::vector<fs::path> parts_of(const fs::path& partial) {
  const std::string stem = partial.filename().string() + ".";
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(partial.has_parent_path() ? partial.parent_path() : ".", error)) {
    const std::string name = entry.path().filename().string();
    if (name.size() > stem.size() && name.starts_with(stem) &&
        name.find_first_not_of("0123456789", stem.size()) == std::string::npos)
      found.push_back(entry.path());
  }
  SF_CHECK(!error, exit_of_errno(error.value(), Exit::kCantCreate), "cannot look for {}: {}", stem, error.message());
  std::ranges::sort(found);
  return found;
}

void refuse_others(const fs::path& partial, const Rows& rows, const std::vector<std::string>& keys) {
  const std::set<std::string_view> asked(keys.begin(), keys.end());
  for (const auto& [key, line] : rows) {
    SF_CHECK(asked.contains(key), Exit::kProtocol,
             "{} holds an answer to {}, which this run does not ask for; go on with the prompts and --limit it was "
             "begun with, remove it, or choose another -o",
             partial.string(), key);
  }
}

// What FILE.partial and those of other ranks hold.
Rows rows_begun(const fs::path& file, const Json& job) {
  const fs::path partial = file.string() + ".partial";
  Rows found;
  if (is_present(partial)) read_rows(partial, job, found);
  if (!is_present(partial.parent_path()) && partial.has_parent_path()) return found;
  for (const fs::path& part : parts_of(partial)) read_rows(part, job, found);
  return found;
}

}  // namespace

AnswerRows::AnswerRows(fs::path file, const Json& job, const std::string& who)
    : file_(std::move(file)), partial_(file_.string() + ".partial"), job_(job) {
  own_partial();
  const bool fresh = fs::file_size(partial_) == 0;
  try {
    refuse_existing(file_);  // another run may have published it since this one began
    read_back();
    write_all(fd_.get(), Json::object().set("by", owner_text(who)).dump() + "\n", partial_);
    take_in();
  } catch (...) {
    if (fresh) ::unlink(partial_.c_str());
    throw;
  }
}

AnswerRows::AnswerRows(fs::path file, const Json& job, int rank)
    : file_(std::move(file)), partial_(fmt::format("{}.partial.{}", file_.string(), rank)), job_(job) {
  read_rows(file_.string() + ".partial", job_, rows_);
  fd_ = UniqueFd(::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  SF_CHECK(fd_.valid(), exit_of_errno(errno, Exit::kCantCreate), "cannot create {}: {}", partial_.string(),
           errno_text(errno));
  write_all(fd_.get(), job_line(job_), partial_);
}

AnswerRows::~AnswerRows() {
  if (fd_.valid() && !written_) ::unlink(partial_.c_str());
}

void AnswerRows::own_partial() {
  for (;;) {
    fd_ = UniqueFd(::open(partial_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    SF_CHECK(fd_.valid(), exit_of_errno(errno, Exit::kCantCreate), "cannot create {}: {}", partial_.string(),
             errno_text(errno));
    struct stat ours {
    }, now{};
    SF_CHECK(fstat(fd_.get(), &ours) == 0 && S_ISREG(ours.st_mode), Exit::kCantCreate, "{} is not a regular file",
             partial_.string());
    SF_CHECK(flock(fd_.get(), LOCK_EX | LOCK_NB) == 0, Exit::kCantCreate,
             "{} is being written by {}; choose another -o, or wait until that run ends", file_.string(),
             owner_of(partial_));
    // The previous owner may have published and removed it between our open and our lock.
    if (stat(partial_.c_str(), &now) == 0 && ours.st_ino == now.st_ino) return;
  }
}

void AnswerRows::read_back() {
  const size_t whole = read_rows(partial_, job_, rows_);
  written_ = !rows_.empty();
  SF_CHECK(ftruncate(fd_.get(), static_cast<off_t>(whole)) == 0 && lseek(fd_.get(), 0, SEEK_END) >= 0, Exit::kIo,
           "cannot continue {}: {}", partial_.string(), errno_text(errno));
  if (whole == 0) write_all(fd_.get(), job_line(job_), partial_);
}

void AnswerRows::take_in() {
  for (const fs::path& part : parts_of(partial_)) {
    Rows found;
    read_rows(part, job_, found);
    for (auto& [key, line] : found) {
      if (rows_.contains(key) || fault("tool.leave_parts")) continue;
      write_all(fd_.get(), with_hash(line), partial_);
      written_ = true;
      rows_.emplace(key, std::move(line));
    }
    fs::remove(part);
  }
}

void AnswerRows::add(const Json& row) {
  std::string line = row.dump();
  write_all(fd_.get(), with_hash(line), partial_);
  written_ = true;
  rows_[key_of(row)] = std::move(line);
}

void AnswerRows::require_only(const std::vector<std::string>& keys) const {
  refuse_others(partial_, rows_, keys);
}

void AnswerRows::publish(const std::vector<std::string>& order, const Json& first) {
  std::string text = first.is_null() ? "" : first.dump() + "\n";
  for (const std::string& key : order) text += rows_.at(key) + "\n";
  write_atomic(file_, text);
  fs::remove(partial_);
  fd_ = UniqueFd();
}

void check_answers_begun(const fs::path& file, const Json& job) {
  rows_begun(file, job);
}

void check_answers_output(const fs::path& file, const Json& job, const std::vector<std::string>* keys) {
  refuse_existing(file);
  require_place_for(file);
  const Rows found = rows_begun(file, job);
  if (keys) refuse_others(file.string() + ".partial", found, *keys);
}

}  // namespace sf::tool
