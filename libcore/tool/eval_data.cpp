// SPDX-License-Identifier: Apache-2.0
#include "tool/eval_data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/mmap.h"
#include "tool/outputs.h"

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

score::QuestionBook read_questions(app::Invocation& invocation, const std::filesystem::path& file, HalfLine half,
                                   bool need_gold) {
  score::QuestionBook book;
  std::set<std::string> unknown;
  JsonLines lines = each_row(file, half, [&](const Json& row, size_t number) {
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

namespace {

// Answers on their way from a file to their questions.
class AnswerReader {
 public:
  AnswerReader(app::Invocation& invocation, const std::filesystem::path& file, score::QuestionBook& book)
      : invocation_(invocation), file_(file), book_(book), given_(book.size() > 0) {}

  AnswerFile read(HalfLine half, const TakeAnswer& take) {
    AnswerFile result;
    std::set<std::string> unknown;
    const JsonLines lines = each_row(file_, half, [&](const Json& row, size_t number) {
      if (number == 1 && score::is_facts_row(row)) {
        const Json* facts = row.find("facts");
        SF_CHECK(!facts || facts->is_object(), Exit::kData, "{}:1: facts: wanted an object, found {}", file_.string(),
                 facts->type_name());
        result.facts = facts ? *facts : row;
        if (given_) check_made_for(result.facts);
        return;
      }
      for (score::AnswerRow& answer : score::answers_of(row, number, file_.string(), unknown))
        take_one(std::move(answer), take);
    });
    say_repairs(invocation_, file_, lines);
    say_unknown(invocation_, file_, unknown);
    if (others_ > 0)
      warn(invocation_, fmt::format("{}:{}: brings another text of question {} than --questions has, and so do {} more "
                                    "answers; were they made for other questions?",
                                    file_.string(), first_other_, other_id_, others_ - 1));
    if (!ends_.empty()) {
      std::vector<std::string> ends;
      for (const auto& [end, count] : ends_) ends.push_back(fmt::format("{} ({})", end, count));
      warn(invocation_,
           fmt::format("{}: ends of answers that are not known here, taken as not cut by the length limit: {}",
                       file_.string(), fmt::join(ends, ", ")));
    }
    result.steps.assign(steps_.begin(), steps_.end());
    return result;
  }

 private:
  std::string place(const score::AnswerRow& row) const { return fmt::format("{}:{}", file_.string(), row.line); }

  // Answers of sf-eval generate name the questions that they were made for.
  void check_made_for(const Json& facts) const {
    const Json* made_for = facts.find("questions");
    if (!made_for || !made_for->is_string()) return;
    const std::string ours = book_.asked_digest();
    SF_CHECK(
        made_for->as_string() == ours, Exit::kProtocol,
        "{} answers questions of digest {:.16}, while those of --questions have {:.16}; give the questions that it "
        "was made for",
        file_.string(), made_for->as_string(), ours);
  }

  size_t question_of(const score::AnswerRow& row) {
    const std::optional<size_t> known = book_.find(row.id);
    if (!given_ && row.question) return book_.add(*row.question);
    SF_CHECK(known || given_, Exit::kData, "{}: nothing says what the answer to {} is: give --questions", place(row),
             row.id);
    SF_CHECK(known, Exit::kData, "{}: there is no question {}", place(row), row.id);
    if (row.question) book_.check_gold(*known, *row.question);
    if (given_ && !score::may_be_one_question(book_.questions()[*known].text, row.asked) && others_++ == 0) {
      first_other_ = row.line;
      other_id_ = row.id;
    }
    return *known;
  }

  void take_one(score::AnswerRow row, const TakeAnswer& take) {
    if (filter_.empty()) filter_ = row.filter;
    if (row.filter != filter_) return;  // the harness writes each answer once for every filter
    if (row.step) steps_.insert(*row.step);
    if (!row.finish.empty()) ++ends_[row.finish];
    const size_t question = question_of(row);
    take(std::move(row), question);
  }

  app::Invocation& invocation_;
  const std::filesystem::path& file_;
  score::QuestionBook& book_;
  const bool given_;
  std::string filter_, other_id_;
  std::set<int64_t> steps_;
  std::map<std::string, size_t> ends_;   // that are not known here, and how often
  size_t others_ = 0, first_other_ = 0;  // answers that bring another text; the first one's line
};

}  // namespace

AnswerFile read_answers(app::Invocation& invocation, const std::filesystem::path& file, HalfLine half,
                        score::QuestionBook& book, const TakeAnswer& take) {
  return AnswerReader(invocation, file, book).read(half, take);
}

score::Scores read_scores(const std::filesystem::path& file, HalfLine half) {
  score::ScoresReader reader(file.string());
  const JsonLines lines =
      each_line(file, half, [&](std::string_view line, size_t number) { reader.take(line, number); });
  return reader.finish(lines.dropped);
}

std::vector<std::filesystem::path> verdicts_in(const std::filesystem::path& dir) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error))
    if (is_scores_file(entry)) files.push_back(entry.path());
  SF_CHECK(!error, exit_of_errno(error.value(), Exit::kNoInput), "cannot read the directory {}: {}", dir.string(),
           error.message());
  std::ranges::sort(files);
  return files;
}

std::optional<Json> scores_header(const std::filesystem::path& file) {
  const MappedFile map = MappedFile::open(file);
  const std::string_view text(reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size());
  try {
    score::ScoresReader reader(file.string());
    reader.take(text.substr(0, text.find('\n')));
    return reader.header();
  } catch (const Error&) {
    return std::nullopt;
  }
}

void say_passed_over(app::Invocation& invocation, const std::filesystem::path& path) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(path, ignored))  // a file: none
    if (entry.path().extension() == ".jsonl" && entry.is_regular_file(ignored) && !is_scores_file(entry))
      warn(invocation, fmt::format("{} holds no verdicts and is passed over", entry.path().string()));
}

bool has_scores(const std::filesystem::path& dir) {
  return !verdicts_in(dir).empty();
}

std::vector<std::filesystem::path> scores_files(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    files = verdicts_in(path);
    SF_CHECK(!files.empty(), Exit::kNoInput, "{}: holds no verdicts of sf-eval score", path.string());
  } else {
    files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<score::Scores> read_all_scores(const std::filesystem::path& path, bool repair) {
  std::vector<score::Scores> all;
  for (const std::filesystem::path& file : scores_files(path)) all.push_back(read_scores(file, half_line(repair)));
  auto place = [](const score::Scores& scores) {  // a re-evaluation stands behind the original
    return std::pair(scores.header.get_int("step", -1), scores.header.get_bool("again", false));
  };
  std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  return all;
}

void check_output(const std::filesystem::path& out) {
  std::error_code ignored;
  SF_CHECK(out.has_filename() && !std::filesystem::is_directory(out, ignored), Exit::kCantCreate,
           "--output {} is a directory; wanted the name of a file", out.string());
  require_place_for(out);
  refuse_to_replace(out);
}

void check_verdicts_output(const std::filesystem::path& out) {
  check_output(out);
  std::error_code ignored;
  const std::filesystem::directory_entry there(out, ignored);
  SF_CHECK(!there.is_regular_file(ignored) || there.file_size(ignored) == 0 || is_scores_file(there), Exit::kCantCreate,
           "{} is there and holds no verdicts; it is not replaced: give -o another FILE", out.string());
}

void refuse_among_inputs(const std::filesystem::path& out, const std::string& input) {
  std::error_code ignored;
  std::filesystem::path dir = out.has_parent_path() ? out.parent_path() : std::filesystem::path(".");
  SF_CHECK(!std::filesystem::equivalent(out, input, ignored) && !std::filesystem::equivalent(dir, input, ignored),
           Exit::kCantCreate, "{} is read here, and {} would be part of it; choose another -o", input, out.string());
}

}  // namespace sf::tool
