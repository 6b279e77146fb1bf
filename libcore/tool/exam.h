// SPDX-License-Identifier: Apache-2.0
// What is asked of a target and how: everything an answer depends on beside the weights. Read without LibTorch, so that
// plans and the search for what is done already need none.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/command.h"
#include "ckpt/checkpoint.h"
#include "score/book.h"
#include "text/chat.h"

namespace sf::tool {

struct Exam {
  score::QuestionBook book;  // the whole set; copies merged
  // What is sent of each question of this part (--limit, --shard), in the book's order.
  std::vector<text::Prompt> prompts;
  int64_t samples = 1;
  Json variables;    // for the chat template, or null
  std::string part;  // "shard 0/2", "first 10", or empty: the whole set
  Json facts;        // an object: digests of questions and prompts, sampling, limits
};

// Reads --questions, --limit, --shard and applies [eval]. Golds may be absent unless `need_gold`. kData naming the
// line, kUsage for options that contradict.
Exam read_exam(app::Invocation& invocation, bool need_gold);
// All of another file's questions, with golds; `settings`: [eval] is applied there.
Exam read_exam(app::Invocation& invocation, config::Settings& settings, const std::filesystem::path& file);

// Who answers: a target, with an adapter or without. `step`: of the training, where it is not what the files say.
struct Candidate {
  std::filesystem::path target;
  std::optional<std::filesystem::path> adapter = {};
  std::optional<int64_t> step = {};
};

// The facts of one target's answers: the exam's, and digests of weights, tokenizer and template, and of the adapter if
// there is one; "step" as given, else where the adapter, or without one the target, comes from a training run.
Json facts_of(const Exam& exam, const ckpt::Checkpoint& target, std::optional<int64_t> step = {},
              const ckpt::Checkpoint* adapter = nullptr);

Json facts_of(const Exam& exam, const Candidate& candidate);

// What the answers to this part depend on: facts, and the part.
Json job_of(const Json& facts, const Exam& exam);

// Prompts as tokens, each shorter than `positions`: kData naming the question otherwise. `encoder` has the exam's
// variables; eval.thinking is applied here.
std::vector<std::vector<int32_t>> encode(config::Settings& settings, const Exam& exam, const text::ChatEncoder& encoder,
                                         int64_t positions);

}  // namespace sf::tool
