// SPDX-License-Identifier: Apache-2.0
// What a run of sf-capture features works on: target, rows, contract, over its ranks. Private to the verb.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "app/command.h"
#include "run/capture.h"
#include "run/capture_passes.h"
#include "run/group.h"
#include "run/target.h"
#include "tool/capture_shard.h"
#include "tool/offline_features.h"
#include "tool/text_account.h"

namespace sf::run {

struct CaptureJob {
  std::unique_ptr<comm::Group> group;
  tool::CaptureShard shard;
  std::unique_ptr<OpenTarget> whole;                // or null: the ranks hold the target together
  std::unique_ptr<tool::OfflineFeatures> imported;  // or null
  std::unique_ptr<StatesOf> states;                 // borrows from those
  SharedStates* shared = nullptr;                   // `states`, where the ranks hold the target together
  std::unique_ptr<Capture> capture;
  std::vector<text::ChatRow> rows;
  stream::Contract contract;
  tool::TextAccount account;
  tool::CaptureBytes bytes;  // planned, where the ranks hold the target together

  bool first() const { return group->rank() == 0; }
  Passes passes() const { return {*capture, *group, shard.pass_tokens(), shard.call_deadline_s}; }
};

// Opens and compares everything; every rank calls these.
CaptureJob open_capture(app::Invocation& invocation);
// Before anything is kept or served: the account of the text is told, and a row that is not what it says ends the run.
void check_first_rows(app::Invocation& invocation, CaptureJob& job, const Carrier& carrier);
// What the ranks held of a target that they hold together, beside what was planned: told, and added to `json`.
void tell_memory(app::Invocation& invocation, const CaptureJob& job, Json* json);

// The two ends of the verb; the exit status.
int capture_to_directory(app::Invocation& invocation, CaptureJob& job);
int capture_to_stream(app::Invocation& invocation, CaptureJob& job);

}  // namespace sf::run
