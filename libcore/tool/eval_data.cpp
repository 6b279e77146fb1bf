// SPDX-License-Identifier: Apache-2.0
#include "tool/eval_data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "tool/json_lines.h"

namespace sf::tool {
namespace {

// Every rank reads the same files.
void warn(app::Invocation& invocation, std::string_view line) {
  if (invocation.ranks().rank == 0) invocation.warn(line);
}

void say_repairs(app::Invocation& invocation, const std::filesystem::path& file, const JsonLines& lines) {
  if (lines.repaired > 0)
    warn(invocation, fmt::format("{}: {} of {} lines held bytes that are no UTF-8; each became U+FFFD", file.string(),
                                 lines.repaired, lines.lines));
  if (lines.dropped) warn(invocation, fmt::format("{}: the half-written last line is left out", file.string()));
}

void say_unknown(app::Invocation& invocation, const std::filesystem::path& file, const std::set<std::string>& unknown) {
  if (!unknown.empty())
    warn(invocation, fmt::format("{}: columns without meaning here: {}", file.string(), fmt::join(unknown, ", ")));
}

// A file of verdicts, whatever its name; temporary files of a writer, which begin with a dot, are none yet.
bool is_scores_file(const std::filesystem::directory_entry& entry) {
  const std::filesystem::path& file = entry.path();
  if (!entry.is_regular_file() || file.filename().string().starts_with('.')) return false;
  UniqueFd fd = open_read(file);
  char bytes[4096];
  ssize_t size = ::read(fd.get(), bytes, sizeof bytes);
  std::string_view head(bytes, size > 0 ? static_cast<size_t>(size) : 0);
  return head.substr(0, head.find('\n')).find("\"kind\":\"scores\"") != std::string_view::npos;
}

}  // namespace

score::QuestionBook read_questions(app::Invocation& invocation, const std::filesystem::path& file, bool need_gold) {
  score::QuestionBook book;
  std::set<std::string> unknown;
  JsonLines lines = each_row(file, half_line(invocation.has("repair")), [&](const Json& row, size_t number) {
    book.add(score::question_of(row, number, file.string(), unknown, need_gold));
  });
  SF_CHECK(book.size() > 0, Exit::kData, "{}: holds no question", file.string());
  say_repairs(invocation, file, lines);
  say_unknown(invocation, file, unknown);
  if (book.copies() > 0)
    warn(invocation, fmt::format("{}: {} rows hold {} questions; {} copies are merged", file.string(), lines.lines,
                                 book.size(), book.copies()));
  for (const std::string& line : book.warnings()) warn(invocation, line);
  return book;
}

AnswerFile read_answers(app::Invocation& invocation, const std::filesystem::path& file, score::QuestionBook& book,
                        const std::function<void(score::AnswerRow, size_t)>& take) {
  AnswerFile result;
  std::set<std::string> unknown;
  std::set<int64_t> steps;
  std::string filter;
  bool given = book.size() > 0;
  auto take_one = [&](score::AnswerRow row, size_t number) {
    if (filter.empty()) filter = row.filter;
    if (row.filter != filter) return;  // the harness writes each answer once for every filter
    if (row.step) steps.insert(*row.step);
    std::optional<size_t> question = book.find(row.id);
    if (!question && !given) {
      SF_CHECK(row.question, Exit::kData, "{}:{}: nothing says what the answer to {} is: give --questions",
               file.string(), number, row.id);
      question = book.add(*row.question);
    } else if (question && row.question) {
      book.add(*row.question);
    }
    SF_CHECK(question, Exit::kData, "{}:{}: there is no question {}", file.string(), number, row.id);
    take(std::move(row), *question);
  };
  JsonLines lines = each_row(file, half_line(invocation.has("repair")), [&](const Json& row, size_t number) {
    if (number == 1 && score::is_facts_row(row)) {
      result.facts = row;
      return;
    }
    for (score::AnswerRow& answer : score::answers_of(row, number, file.string(), unknown))
      take_one(std::move(answer), number);
  });
  say_repairs(invocation, file, lines);
  say_unknown(invocation, file, unknown);
  result.steps.assign(steps.begin(), steps.end());
  return result;
}

score::Scores read_scores(const std::filesystem::path& file, bool repair) {
  score::ScoresReader reader(file.string());
  JsonLines lines = each_line(file, half_line(repair), [&](std::string_view line, size_t) { reader.take(line); });
  return reader.finish(lines.dropped);
}

bool has_scores(const std::filesystem::path& dir) {
  for (const auto& entry : std::filesystem::directory_iterator(dir))
    if (is_scores_file(entry)) return true;
  return false;
}

std::vector<std::filesystem::path> scores_files(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    for (const auto& entry : std::filesystem::directory_iterator(path))
      if (is_scores_file(entry)) files.push_back(entry.path());
    SF_CHECK(!files.empty(), Exit::kNoInput, "{}: holds no verdicts of sf-eval score", path.string());
  } else {
    files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<score::Scores> read_all_scores(const std::filesystem::path& path, bool repair) {
  std::vector<score::Scores> all;
  for (const std::filesystem::path& file : scores_files(path)) all.push_back(read_scores(file, repair));
  auto place = [](const score::Scores& scores) {  // a re-evaluation stands behind the original
    return std::pair(scores.header.get_int("step", -1), scores.header.get_bool("again", false));
  };
  std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  return all;
}

void check_output(const std::filesystem::path& out) {
  std::error_code ignored;
  std::filesystem::path dir = out.has_parent_path() ? out.parent_path() : std::filesystem::path(".");
  SF_CHECK(out.has_filename() && !std::filesystem::is_directory(out, ignored), Exit::kCantCreate,
           "--output {} is a directory; wanted the name of a file", out.string());
  SF_CHECK(std::filesystem::is_directory(dir, ignored), Exit::kCantCreate, "cannot create {}: there is no directory {}",
           out.string(), dir.string());
  refuse_to_replace(out);
}

void refuse_among_inputs(const std::filesystem::path& out, const std::string& input) {
  std::error_code ignored;
  std::filesystem::path dir = out.has_parent_path() ? out.parent_path() : std::filesystem::path(".");
  SF_CHECK(!std::filesystem::equivalent(out, input, ignored) && !std::filesystem::equivalent(dir, input, ignored),
           Exit::kCantCreate, "{} is read here, and {} would be part of it; choose another -o", input, out.string());
}

}  // namespace sf::tool
