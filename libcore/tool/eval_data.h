// SPDX-License-Identifier: Apache-2.0
// Questions, answers and verdicts as sf-eval's verbs read them from files.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "app/command.h"
#include "score/book.h"
#include "score/scores.h"
#include "tool/json_lines.h"

namespace sf::tool {

// Says copies, contradictions, known defects and columns without meaning. kData if there is no question.
score::QuestionBook read_questions(app::Invocation& invocation, const std::filesystem::path& file, HalfLine half,
                                   bool need_gold = true);

struct AnswerFile {
  Json facts;                  // of a first row without text, or null
  std::vector<int64_t> steps;  // distinct steps the rows name
};
using TakeAnswer = std::function<void(score::AnswerRow row, size_t question)>;
// Calls `take` with each answer and the index of its question, as the file has them. A book without questions is filled
// from the rows (sample files bring their own). kData: an answer to no question; golds that contradict the book.
// kProtocol: facts that name other questions. Answers without facts that bring another text are said.
AnswerFile read_answers(app::Invocation& invocation, const std::filesystem::path& file, HalfLine half,
                        score::QuestionBook& book, const TakeAnswer& take);

score::Scores read_scores(const std::filesystem::path& file, HalfLine half);
// Of a file of verdicts; nothing if its first line is no header.
std::optional<Json> scores_header(const std::filesystem::path& file);
// Files of a directory that hold verdicts, by name, maybe none. kNoInput, kNoPermission if it cannot be read.
std::vector<std::filesystem::path> verdicts_in(const std::filesystem::path& dir);
// Names in a warning the files *.jsonl of a directory that hold none, as what is left of a file that was cut.
void say_passed_over(app::Invocation& invocation, const std::filesystem::path& path);
// Whether a directory holds a file of verdicts.
bool has_scores(const std::filesystem::path& dir);
// Every file of a directory that holds verdicts, by name; a file: itself alone. kNoInput if there is none.
std::vector<std::filesystem::path> scores_files(const std::filesystem::path& path);
// The same, read, by step.
std::vector<score::Scores> read_all_scores(const std::filesystem::path& path, bool repair);

// Before the work: kCantCreate if `out` cannot be a new file, or would take the place of what was published.
void check_output(const std::filesystem::path& out);
// The same of a file of verdicts, which replaces its like and nothing else.
void check_verdicts_output(const std::filesystem::path& out);
// An output must not be one of the files that are read, nor lie among them, where it would be read next time
// (kCantCreate).
void refuse_among_inputs(const std::filesystem::path& out, const std::string& input);

}  // namespace sf::tool
