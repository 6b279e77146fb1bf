// SPDX-License-Identifier: Apache-2.0
// Rows of questions and of answers, as people have them. Column names are matched whatever their case. Where several
// columns could say one thing, they must agree; of several ids the first in the order below counts.
//   questions  id | problem_idx | question_id | prompt_id | uid (else the line's number), a text or a whole number: 1
//   and
//              "1" are one id; problem | question | prompt (a string, or chat messages), messages | conversations;
//              answer | final_answer | gold | target | reward_model.ground_truth, a string or a number; with none of
//              these, the last box of `solution`
//   answers    plain: id, sample, and completion | response | output | generation | text | messages | answer
//              lm-evaluation-harness' sample files (doc, resps) and verl's validation dumps (input, output, gts): these
//              bring their questions with them
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"

namespace sf::score {

struct Question {
  std::string id, text, gold;
  Json messages = {};       // the prompt as chat messages, where it was given so
  std::string origin = {};  // "FILE:LINE"
};

struct AnswerRow {
  std::string id;
  std::optional<int64_t> sample;  // absent: numbered in order
  std::string text;
  bool cut = false;              // finish (or finish_reason) is "length"
  bool opened_thinking = false;  // the prompt ended with <think>
  std::string finish;            // what finish says, where that is no end known here
  int64_t tokens = -1;           // -1: not said
  std::optional<int64_t> step;
  std::optional<Question> question;  // what the row itself says of its question
  std::string asked;                 // the text of the question or prompt that the row brings, gold or not
  std::string filter;                // lm-evaluation-harness' filter, else empty
  size_t line = 0;
};

// `line` counts from 1 and is the id of a row without one. Columns that mean nothing here are added to `unknown`.
// kData, "ORIGIN:LINE: ...", if there is no gold or no text, if columns contradict one another or are of an odd kind.
// `need_gold` false: a gold may be absent, then it is empty.
Question question_of(const Json& row, size_t line, std::string_view origin, std::set<std::string>& unknown,
                     bool need_gold = true);
// One row may hold several answers.
std::vector<AnswerRow> answers_of(const Json& row, size_t line, std::string_view origin,
                                  std::set<std::string>& unknown);
// A first row without a text may hold facts of the whole file (digests of weights, prompt, template, ...).
bool is_facts_row(const Json& row);

// Letters, digits and operators of a question's text in lower case, white space and markup gone: equal for copies of a
// question.
std::string normal_question(std::string_view text);
// Whether two texts may be one question: one holds the other, up to case, white space and markup, or there is none.
bool may_be_one_question(std::string_view a, std::string_view b);

// Questions whose published copies are known to be wrong: what is known of this one, or empty.
std::string known_defect(const Question& question);

}  // namespace sf::score
