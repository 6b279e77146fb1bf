// SPDX-License-Identifier: Apache-2.0
// Answers as a file: appended row by row to FILE.partial, put into order and published by rename when all are there. A
// stopped or killed run continues from its rows. Of several ranks, the first owns FILE.partial; the others append to
// FILE.partial.RANK, which the first takes in when they are done, or when the next run begins.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace sf::tool {

class AnswerRows {
 public:
  // The first rank's. `job`: an object of all that rows depend on. kProtocol naming what differs if FILE.partial was
  // begun by another job, and naming a row that was damaged since it was written; kCantCreate if FILE exists, or
  // another run holds FILE.partial, whose owner is named by `who`; kData naming the line that is none of ours; a
  // half-written last line is dropped.
  AnswerRows(std::filesystem::path file, const Json& job, const std::string& who);
  // Another rank's (1 and up), once the first has its own: knows the rows that the first found. It begins empty.
  AnswerRows(std::filesystem::path file, const Json& job, int rank);
  AnswerRows(const AnswerRows&) = delete;
  ~AnswerRows();  // a file without rows goes
  // A row's key: its id, or ID/SAMPLE if it has a sample.
  bool has(const std::string& key) const { return rows_.contains(key); }
  size_t size() const { return rows_.size(); }
  // kProtocol naming a row that was found and is not among `keys`: publishing without it would lose it.
  void require_only(const std::vector<std::string>& keys) const;
  void add(const Json& row);  // on disk as one whole line when it returns
  // The first rank's: takes in what other ranks wrote, and removes their files. No other rank may write meanwhile.
  void take_in();
  // `first`: a line in front of the rows, or null.
  void publish(const std::vector<std::string>& order, const Json& first);
  const std::filesystem::path& partial() const { return partial_; }

 private:
  void own_partial();  // opens and locks it
  void read_back();
  std::filesystem::path file_, partial_;
  Json job_;
  std::map<std::string, std::string> rows_;  // key -> line
  bool written_ = false;                     // a row is in `partial_`
  UniqueFd fd_;
};

// What the first rank's would refuse of FILE.partial, and of FILE too, for plans: touches nothing. With `keys`, what
// require_only() would, too.
void check_answers_begun(const std::filesystem::path& file, const Json& job);
void check_answers_output(const std::filesystem::path& file, const Json& job,
                          const std::vector<std::string>* keys = nullptr);

}  // namespace sf::tool
