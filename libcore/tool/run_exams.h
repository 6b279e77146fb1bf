// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a run and where verdicts about them lie: a file a (weights, questions, rule, seed, settings),
// published by rename, so that whoever comes second sees what is done. Needs no LibTorch.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tool/exam.h"

namespace sf::tool {

// RUN/step-N by step, each with its step; in front of them --target, as step 0, if it is given; of these only the
// --nth, from 0. A checkpoint that is an adapter answers with --target (kUsage without). kNoInput if there is no such
// run or no such checkpoint.
std::vector<Candidate> candidates(const app::Invocation& invocation);

// Refuses golds that the rule refuses, before the work (kData). The rule's digest.
std::string checked_rule(const app::Invocation& invocation, const Exam& exam);

// Files below --output: STEP-KEY.jsonl and answers/STEP-KEY.jsonl; of a shard, STEP-KEY.of-N/I.jsonl and answers
// likewise.
struct ExamFiles {
  std::filesystem::path whole;     // verdicts of all questions
  std::filesystem::path verdicts;  // of this part; without --shard the same
  std::filesystem::path answers;
  bool is_part() const { return whole != verdicts; }
  // What is published of this checkpoint and part, if anything: the whole wins.
  std::optional<std::filesystem::path> found() const;
};
ExamFiles files_of(const app::Invocation& invocation, const Exam& exam, const std::string& rule,
                   const Candidate& candidate);

// Names a checkpoint's verdicts, which are published, and merges the parts if all are there; `before`: another run made
// them.
void tell_verdicts(app::Invocation& invocation, int64_t step, const ExamFiles& files, bool before);

// The status, if every checkpoint that is asked for has its verdicts. Else nothing is said or changed.
std::optional<int> checkpoints_done(app::Invocation& invocation);

// --plan: one line a checkpoint, with what is done already.
int checkpoints_plan(app::Invocation& invocation);

}  // namespace sf::tool
