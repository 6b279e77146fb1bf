// SPDX-License-Identifier: Apache-2.0
// Answers of a target into a file, by one rank or by several that each hold the whole target.
#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "comm/group.h"
#include "run/target.h"

namespace sf::run {

struct AnswerRun {
  gen::GenerateStats stats;
  size_t kept = 0;  // rows found in the file
  int ranks = 1;
  double tokens_per_s() const;
  std::string summary() const;
  Json to_json() const;
};

// What is to be answered, one prompt a row, and how a row is made of its answer.
struct AnswerTask {
  using Done = std::function<void(const gen::Completion&)>;
  std::vector<std::string> keys;
  std::vector<gen::Prompt> prompts;
  std::function<Json(size_t prompt, const gen::Completion& completion)> row;
  std::function<gen::GenerateStats(std::span<const gen::Prompt>, const Done&)> generate;
  Json job;    // all that rows depend on, an object: another one must not continue the same file
  Json first;  // a line in front of the rows, or null
};

// Answers what the file lacks, each rank every world-th of it, and publishes it. Exit status, the same on all ranks: 0,
// or 75 with the rows so far kept in FILE.partial, which is said. kCantCreate if FILE exists. `run`: sums over the
// ranks, times of the slowest.
int answer_into_file(app::Invocation& invocation, comm::Group& group, const AnswerTask& task,
                     const std::filesystem::path& file, AnswerRun& run);

// The answers as chats: id, messages with the answer, input_ids and loss_mask of the tokens as they were generated,
// finish. `job`: tool::chat_job. All else must outlive the task.
AnswerTask chat_task(OpenTarget& target, const gen::GenerateOptions& options, const EncodedPrompts& prompts, Json job);

}  // namespace sf::run
