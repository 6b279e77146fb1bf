// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a run and where verdicts about them lie: a file a (weights, questions, rule, seed, settings),
// published by rename, so that whoever comes second sees what is done. Needs no LibTorch.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tool/exam.h"
#include "tool/exam_files.h"

namespace sf::tool {

// RUN/step-N by step, each with its step; in front of them --target, as step 0, if it is given; of these only the
// --nth, from 0. A checkpoint that is an adapter answers with --target (kUsage without). kNoInput if there is no such
// run or no such checkpoint.
std::vector<Candidate> candidates(const app::Invocation& invocation);

// Refuses golds that the rule refuses, before the work (kData). The rule's digest.
std::string checked_rule(const app::Invocation& invocation, const Exam& exam);

ExamFiles files_of(const app::Invocation& invocation, const Exam& exam, const std::string& rule,
                   const Candidate& candidate);

// Names a checkpoint's verdicts, which are published, and merges the parts if all are there; `before`: another run made
// them.
void tell_verdicts(app::Invocation& invocation, int64_t step, const ExamFiles& files, bool before);

// The status, if every checkpoint that is asked for has its verdicts. Else nothing is said or changed.
std::optional<int> checkpoints_done(app::Invocation& invocation);

// --idle in seconds, for watch; 3600 by default.
double idle_option(const app::Invocation& invocation);

// --plan: one line a checkpoint, with what is done already. Of watch, whose run may come later.
int checkpoints_plan(app::Invocation& invocation);
int watch_plan(app::Invocation& invocation);

}  // namespace sf::tool
