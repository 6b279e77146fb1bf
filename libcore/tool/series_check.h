// SPDX-License-Identifier: Apache-2.0
// What would make a directory of verdicts one that cannot be reported: looked at before anything is made.
#pragma once
#include <span>
#include <string>

#include "app/command.h"
#include "tool/exam.h"

namespace sf::tool {

// kProtocol naming file and difference if --output holds verdicts, originals of any checkpoint, that were made with
// other settings, over other questions or with other options of the same rule, or verdicts of one of these steps by
// other weights.
void refuse_other_series(const app::Invocation& invocation, const Exam& exam, std::span<const Candidate> candidates);

// kProtocol if an adapter was made for another target, or --target has other words or another shape than a checkpoint
// of the run. Opens each: kNoInput, kData if one is not whole.
void check_candidates(const app::Invocation& invocation, std::span<const Candidate> candidates);

// kCantCreate if --output cannot be a directory of verdicts.
void check_series_output(const app::Invocation& invocation);

}  // namespace sf::tool
