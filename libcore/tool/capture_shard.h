// SPDX-License-Identifier: Apache-2.0
// How the ranks of a capture hold its target, and the bytes of that: for --plan and for the run. Needs no LibTorch.
#pragma once
#include <cstdint>
#include <memory>

#include "app/command.h"
#include "arch/decoder.h"
#include "plan/schedule.h"
#include "stream/feature_dir.h"
#include "tool/capture_wish.h"
#include "tool/chats.h"

namespace sf::tool {

// Tokens of one rank that pass a gathered segment, a row after the other: its gather and packing serve them all. A
// longer row passes alone.
inline constexpr int64_t kPassTokens = 1024;

// Of the self-test: tokens of a row, beyond 256, where a forward is cut; and behind them, as what follows a token must
// not change its state.
inline constexpr int64_t kMostChecked = 320, kBehindChecked = 8;

struct CaptureShard {
  plan::ScheduleOptions schedule;
  double call_deadline_s = 0;
  // Ranks hold the target together; otherwise each has the whole.
  bool together() const { return schedule.world > 1 && schedule.layout != plan::Layout::kReplicate; }
  int64_t pass_tokens() const { return schedule.world > 1 ? kPassTokens : 1; }  // 1: a row
};
// Applies shard.backend and engine.call_deadline_s. kUsage, kConfig for what one process alone does, and for what does
// not go with a target that ranks hold together.
CaptureShard apply_capture_shard(app::Invocation& invocation, int world, Dtype compute);

struct CaptureLoad {
  int64_t longest = 0;      // tokens of a row
  int64_t checked = 0;      // rows of the self-test
  int64_t checked_row = 0;  // tokens of one of them at most
  uint64_t feature = 0;     // bytes of a carried element
};
CaptureLoad capture_load(const config::Settings& settings, const Chats& chats, const stream::Contract& contract);
// Of tensors of one rank that holds its share of the target. At rest: its intervals and the slots of gathered segments.
// Peak: the most at one time, a segment's packed weights and the self-test's included; never below what is measured.
struct CaptureBytes {
  uint64_t at_rest = 0, peak = 0;
};
CaptureBytes capture_bytes(const arch::Decoder& decoder, const CaptureWish& wish, const CaptureShard& shard,
                           const CaptureLoad& load, int rank);

// The features of --reuse, or null: captured under this contract but for its data (rows, order, mask, length).
// kProtocol naming the field that differs.
std::unique_ptr<stream::DirSource> open_reused(const app::Invocation& invocation, const stream::Contract& contract);
// What that would refuse, from the target's files alone.
void check_reused(app::Invocation& invocation, const CaptureWish& wish, Dtype compute);

}  // namespace sf::tool
