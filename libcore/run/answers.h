// SPDX-License-Identifier: Apache-2.0
// Answers of a target as a file: appended row by row to FILE.partial, put into order and published by rename when all
// are there. A stopped or killed run continues from its rows.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "base/file.h"
#include "run/target.h"

namespace sf::run {

class AnswerFile {
 public:
  // kProtocol if FILE.partial was begun by another job; kCantCreate if FILE exists, or another run holds FILE.partial,
  // whose owner is named by `who`; a half-written last line is dropped.
  AnswerFile(std::filesystem::path file, const std::string& job, const std::string& who);
  AnswerFile(const AnswerFile&) = delete;
  ~AnswerFile();  // FILE.partial goes if no row is in it
  // A row's key: its id, or ID/SAMPLE if it has a sample.
  bool has(const std::string& key) const { return rows_.contains(key); }
  size_t size() const { return rows_.size(); }
  void add(const Json& row);  // on disk as one whole line when it returns
  // `first`: a line in front of the rows, or null.
  void publish(const std::vector<std::string>& order, const Json& first);
  const std::filesystem::path& partial() const { return partial_; }

 private:
  void take_partial();  // opens and locks it
  void read_back(const std::string& job);
  std::filesystem::path file_, partial_;
  std::map<std::string, std::string> rows_;  // key -> line
  UniqueFd fd_;
};

struct AnswerRun {
  gen::GenerateStats stats;
  size_t kept = 0;  // rows found in the file
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
  std::string job;  // digest of all that rows depend on: another one must not continue the same file
  Json first;       // a line in front of the rows, or null
};

// Answers what the file lacks and publishes it. Exit status: 0, or 75 with the rows so far kept in FILE.partial, which
// is said. kCantCreate if FILE exists.
int answer_into_file(app::Invocation& invocation, const AnswerTask& task, const std::filesystem::path& file,
                     AnswerRun& run);

// The answers as chats: id, messages with the answer, input_ids and loss_mask of the tokens as they were generated,
// finish. All must outlive the task.
AnswerTask chat_task(OpenTarget& target, const gen::GenerateOptions& options, const EncodedPrompts& prompts);
void refuse_existing(const std::filesystem::path& out);  // kCantCreate

}  // namespace sf::run
