// SPDX-License-Identifier: Apache-2.0
// Answers of a target to the questions of an exam.
#pragma once
#include <filesystem>
#include <optional>

#include "run/answers.h"
#include "tool/exam.h"

namespace sf::run {

struct Examined {
  int status = 0;  // 0, or 75 with the rows so far kept
  AnswerRun run;
};

// Answers every question `samples` times: rows id, sample, completion, finish, tokens, prompt_tokens, logprob, ids, in
// the exam's order behind a line of facts. The answer to (question, sample) depends on the target, the exam and the
// seed alone. Without `out` the lines go to standard output
// of the only rank, and a stop is answered with 128 + signal. Settles the settings.
Examined examine(app::Invocation& invocation, comm::Group& group, const tool::Exam& exam,
                 const tool::Candidate& candidate, const std::optional<std::filesystem::path>& out);

}  // namespace sf::run
