// SPDX-License-Identifier: Apache-2.0
// Answers of a target as a file of chats: appended row by row to FILE.partial, put into the prompts' order and
// published by rename when all are there. A stopped or killed run continues from its rows.
#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "base/file.h"
#include "run/target.h"

namespace sf::run {

// What the answers depend on, as one digest: another target, template or sampling must not continue the same file.
std::string answer_job(const OpenTarget& target, const gen::GenerateOptions& options);

class AnswerFile {
 public:
  // kProtocol if FILE.partial was begun by another job; kCantCreate if FILE exists, or another run holds FILE.partial,
  // whose owner is named by `who`; a half-written last line is dropped.
  AnswerFile(std::filesystem::path file, const std::string& job, const std::string& who);
  AnswerFile(const AnswerFile&) = delete;
  ~AnswerFile();  // FILE.partial goes if no row is in it
  bool has(const std::string& id) const { return rows_.contains(id); }
  size_t size() const { return rows_.size(); }
  void add(const std::string& id, const Json& row);  // on disk as one whole line when it returns
  void publish(const std::vector<text::Prompt>& order);
  const std::filesystem::path& partial() const { return partial_; }

 private:
  void take_partial();  // opens and locks it
  void read_back(const std::string& job);
  std::filesystem::path file_, partial_;
  std::map<std::string, std::string> rows_;  // id -> line
  UniqueFd fd_;
};

struct AnswerRun {
  gen::GenerateStats stats;
  size_t kept = 0;  // rows found in the file
  bool stopped = false;
  double tokens_per_s() const;
  std::string summary() const;
  Json to_json() const;
};

// Answers every prompt the file lacks. Each row: id, messages with the answer, input_ids and loss_mask of the tokens as
// they were generated, finish.
AnswerRun answer_all(app::Invocation& invocation, OpenTarget& target, const gen::GenerateOptions& options,
                     const EncodedPrompts& prompts, AnswerFile& file);

// The whole way from prompts to a published file of chats, which the result names. Exit status: 0, or 75 with the rows
// so far kept in FILE.partial. kCantCreate if FILE exists.
int answer_into_file(app::Invocation& invocation, OpenTarget& target, const gen::GenerateOptions& options,
                     const EncodedPrompts& prompts);
void refuse_existing(const std::filesystem::path& out);  // kCantCreate

}  // namespace sf::run
