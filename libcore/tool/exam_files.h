// SPDX-License-Identifier: Apache-2.0
// Where the verdicts and answers of one checkpoint lie, and which of them count as made.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace sf::tool {

// Files below --output: STEP-KEY.jsonl and answers/STEP-KEY.jsonl; of a shard, STEP-KEY.of-N/I.jsonl and answers
// likewise.
struct ExamFiles {
  std::filesystem::path whole;     // verdicts of all questions
  std::filesystem::path verdicts;  // of this part; without --shard the same
  std::filesystem::path answers;
  bool is_part() const { return whole != verdicts; }
  // What is published, whole, of this checkpoint and part, if anything: the verdicts of all questions win.
  std::optional<std::filesystem::path> found() const;
  // Why verdicts that are there do not count as published, "FILE: ..."; empty: none are, or they count.
  std::vector<std::string> damage() const;
};
// Whether a file holds verdicts, all that its header promises.
bool is_whole(const std::filesystem::path& file);

}  // namespace sf::tool
