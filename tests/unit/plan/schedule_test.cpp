// SPDX-License-Identifier: Apache-2.0
#include "plan/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace sf::plan {
namespace {

arch::ModelSpec toy() {
  arch::ModelSpec spec;
  spec.parameters = {{"embed", {10, 4}, true, ""}, {"table", {6, 4}, false, ""}, {"block", {4, 4}, true, ""}};
  spec.aliases = {{"head", "embed"}};
  return spec;
}

std::vector<arch::Segment> chain() {
  return {{"first", {"table"}, {"ids"}, {"h0"}, 0},
          {"second", {"embed", "block"}, {"h0"}, {"h1"}, 0},
          {"third", {"head", "embed"}, {"h1"}, {"loss"}, 0}};
}

ScheduleOptions of_world(int world) {
  ScheduleOptions options;
  options.world = world;
  return options;
}

std::string why(const arch::ModelSpec& spec, const std::vector<arch::Segment>& segments,
                const ScheduleOptions& options) {
  try {
    make_schedule(spec, segments, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Schedule, AnAliasIsTheSameStorageAndEachUseHasAnAccumulator) {
  Schedule plan = make_schedule(toy(), chain(), of_world(2));
  EXPECT_EQ(plan.groups[2].members.size(), 1u);
  EXPECT_EQ(plan.parameters[0].groups, (std::vector<size_t>{1, 2}));
  // rank 0: (5 rows of embed + 2 of block) in one group, 5 rows of embed in the other
  EXPECT_EQ(plan.memory[0].accumulators, aligned_bytes(28, Dtype::kF32) + aligned_bytes(20, Dtype::kF32));
}

TEST(Schedule, AFrozenPrefixHasNoBackward) {
  Schedule plan = make_schedule(toy(), chain(), of_world(2));
  EXPECT_FALSE(plan.groups[0].needs_graph);
  EXPECT_FALSE(plan.gathers(0, true));
  EXPECT_TRUE(plan.groups[0].fold_offsets.empty());
}

TEST(Schedule, TheLastGroupIsStillThereWhenBackwardBegins) {
  Schedule plan = make_schedule(toy(), chain(), of_world(2));
  EXPECT_TRUE(plan.gathers(2, false));
  EXPECT_FALSE(plan.gathers(2, true));
  EXPECT_TRUE(plan.gathers(1, true));
}

uint64_t sum_of(const Schedule& plan, uint64_t Group::*bytes) {
  uint64_t sum = 0;
  for (const Group& group : plan.groups) sum += group.*bytes;
  return sum;
}

// Slots of 96, 224 and 160 bytes (64-byte units: 128, 256, 192).
TEST(Schedule, SlotsAreReusedSoTheArenaIsTheLargestGroup) {
  Schedule plan = make_schedule(toy(), chain(), of_world(2));
  EXPECT_EQ(plan.arena_bytes, plan.groups[1].slot_bytes);
}

TEST(Schedule, WhatStaysGatheredDecidesArenaAndGathers) {
  auto gathers = [](const std::vector<Action>& actions) {
    return std::count_if(actions.begin(), actions.end(), [](auto& a) { return a.kind == Action::Kind::kGather; });
  };
  ScheduleOptions options = of_world(2);
  options.reshard = Reshard::kGradOp;
  Schedule kept = make_schedule(toy(), chain(), options);
  EXPECT_EQ(gathers(kept.round), 3);                              // none again in backward
  EXPECT_LT(kept.arena_bytes, sum_of(kept, &Group::slot_bytes));  // the first group is done when the last begins
  options.reshard = Reshard::kNone;
  Schedule none = make_schedule(toy(), chain(), options);
  EXPECT_EQ(gathers(none.round), 3);
  EXPECT_EQ(gathers(none.later), 0);
  EXPECT_EQ(none.arena_bytes, sum_of(none, &Group::slot_bytes));
}

TEST(Schedule, AStepLeavesWhatIsFrozenInAKeptSlot) {
  arch::ModelSpec spec;
  spec.parameters = {{"table", {10, 4}, false, ""}, {"draft", {10, 4}, true, ""}};
  std::vector<arch::Segment> one{{"draft", {"table", "draft"}, {"ids"}, {"loss"}, 0}};
  for (auto [reshard, left] :
       {std::pair(Reshard::kNone, Slots::State::kFrozen), {Reshard::kFull, Slots::State::kEmpty}}) {
    ScheduleOptions options = of_world(2);
    options.reshard = reshard;
    Schedule plan = make_schedule(spec, one, options);
    Slots slots(plan);
    slots.gathered(0);
    slots.masters_changed();
    EXPECT_EQ(slots.state(0), left);
    EXPECT_EQ(due(plan, slots, 0, 2).at(0).trainable_only, reshard == Reshard::kNone);
  }
}

TEST(Schedule, PrefetchHoldsTheNextGroupsToo) {
  ScheduleOptions options = of_world(2);
  options.prefetch = 1;
  Schedule plan = make_schedule(toy(), chain(), options);
  Slots slots(plan);
  auto first = due(plan, slots, 0, 6);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[1].use.group, 1u);
  auto overlap = [&](size_t a, size_t b) {
    const Group &x = plan.groups[a], &y = plan.groups[b];
    return x.slot_begin < y.slot_begin + y.slot_bytes && y.slot_begin < x.slot_begin + x.slot_bytes;
  };
  EXPECT_FALSE(overlap(0, 1));
  EXPECT_FALSE(overlap(1, 2));
}

TEST(Schedule, AMeshOfReplicasHoldsWholeRowsAndSpreadsTheStep) {
  ScheduleOptions options = of_world(4);
  options.replicas = 2;
  Schedule plan = make_schedule(toy(), chain(), options);
  EXPECT_EQ(plan.parameters[0].intervals[1], plan.parameters[0].intervals[3]);
  EXPECT_EQ(plan.memory[0].masters, aligned_bytes(20, Dtype::kF32) + aligned_bytes(8, Dtype::kF32));
  EXPECT_EQ(plan.memory[0].moments, 2 * (aligned_bytes(10, Dtype::kF32) + aligned_bytes(4, Dtype::kF32)));
  EXPECT_NE(plan.text().find("step: spread masters 224 bytes\n"), std::string::npos) << plan.text();
}

TEST(Schedule, WholeCopiesGatherNothing) {
  ScheduleOptions options = of_world(3);
  options.layout = Layout::kReplicate;
  Schedule plan = make_schedule(toy(), chain(), options);
  EXPECT_EQ(plan.round.size(), 2u);  // the folds
  EXPECT_EQ(sum_of(plan, &Group::slot_bytes), 0u);
  EXPECT_EQ(plan.memory[0].masters, plan.memory[2].masters);
}

TEST(Schedule, LocalSumsFoldOnceAWindow) {
  ScheduleOptions options = of_world(2);
  options.local = true;
  Schedule plan = make_schedule(toy(), chain(), options);
  for (const Action& action : plan.round) EXPECT_EQ(action.kind, Action::Kind::kGather);
  EXPECT_EQ(plan.step.size(), 2u);
  EXPECT_EQ(plan.memory[0].sums, plan.groups[1].sum_bytes() + plan.groups[2].sum_bytes());
}

TEST(Schedule, AWorldOfOneInFp32GathersNothing) {
  Schedule plan = make_schedule(toy(), chain(), of_world(1));
  EXPECT_EQ(sum_of(plan, &Group::slot_bytes), 0u);
  ScheduleOptions bf16 = of_world(1);
  bf16.compute = Dtype::kBF16;
  EXPECT_GT(sum_of(make_schedule(toy(), chain(), bf16), &Group::slot_bytes), 0u);
}

TEST(Schedule, WhatIsStillInItsSlotIsNotGatheredAgainWithinAWindow) {
  auto gathers = [](const std::vector<Action>& actions) {
    return std::count_if(actions.begin(), actions.end(), [](auto& a) { return a.kind == Action::Kind::kGather; });
  };
  arch::ModelSpec spec;
  spec.parameters = {{"draft", {10, 4}, true, ""}};
  Schedule one = make_schedule(spec, {{"draft", {"draft"}, {"ids"}, {"loss"}, 0}}, of_world(2));
  EXPECT_EQ(gathers(one.round), 1);
  EXPECT_EQ(gathers(one.later), 0);
  Schedule three = make_schedule(toy(), chain(), of_world(2));
  EXPECT_EQ(gathers(three.round), 4);  // three forward, one of them again in backward
  EXPECT_EQ(gathers(three.later), 4);
}

TEST(Slots, AStepInvalidatesWhatTrainsAndNothingElse) {
  arch::ModelSpec spec;
  spec.parameters = {{"table", {10, 4}, false, ""}, {"draft", {10, 4}, true, ""}};
  Schedule plan = make_schedule(
      spec, {{"look", {"table"}, {"ids"}, {"h"}, 0}, {"draft", {"draft"}, {"h"}, {"loss"}, 0}}, of_world(2));
  plan.groups[1].slot_begin = plan.groups[0].slot_bytes;  // as if both had to live at once
  Slots slots(plan);
  slots.gathered(0);
  slots.gathered(1);
  EXPECT_FALSE(slots.state(0) != Slots::State::kFull);
  slots.masters_changed();
  EXPECT_FALSE(slots.state(0) != Slots::State::kFull);
  EXPECT_TRUE(slots.state(1) != Slots::State::kFull);
  slots.forget();
  EXPECT_TRUE(slots.state(0) != Slots::State::kFull);
}

TEST(Schedule, AReplicatedTableIsWholeOnEveryRankAndNeverGathered) {
  ScheduleOptions options = of_world(4);
  options.replicated = {"table"};
  Schedule plan = make_schedule(toy(), chain(), options);
  EXPECT_FALSE(plan.gathers(0, false));
  EXPECT_EQ(plan.memory[3].frozen, aligned_bytes(24, Dtype::kF32));
}

TEST(Schedule, RefusesWhatDoesNotFitByName) {
  ScheduleOptions options = of_world(2);
  options.replicated = {"embed"};
  EXPECT_NE(why(toy(), chain(), options).find("parameter embed trains"), std::string::npos);
  auto segments = chain();
  segments[0].parameters = {"tabel"};
  EXPECT_NE(why(toy(), segments, of_world(2)).find("unknown parameter tabel"), std::string::npos);
  segments = chain();
  segments[1].writes = {"h0"};
  EXPECT_NE(why(toy(), segments, of_world(2)).find("boundary h0 is written by segments first and second"),
            std::string::npos);
  segments = chain();
  segments[1].parameters = {"embed"};
  EXPECT_NE(why(toy(), segments, of_world(2)).find("parameter block trains, but no segment uses it"),
            std::string::npos);
}

TEST(Schedule, TextNamesEveryCollectiveWithItsBytesAndDigestFollowsIt) {
  Schedule plan = make_schedule(toy(), chain(), of_world(2));
  std::string text = plan.text();
  EXPECT_NE(text.find("first round: forward gather second 224 bytes\n"), std::string::npos) << text;
  EXPECT_NE(text.find("first round: backward fold third 160 bytes\n"), std::string::npos) << text;
  Schedule other = make_schedule(toy(), chain(), of_world(2));
  EXPECT_EQ(plan.digest(), other.digest());
  other.options.facts.push_back("threads 2");
  EXPECT_NE(plan.digest(), other.digest());
  EXPECT_NE(first_difference(text, other.text()).find("line 2: "), std::string::npos);
}

TEST(Place, BuffersThatLiveAtTheSameTimeNeverOverlap) {
  std::vector<Life> lives{{100, {{0, 2}}}, {300, {{1, 3}}}, {200, {{2, 5}}}, {50, {{0, 1}, {4, 5}}}};
  uint64_t arena = 0;
  auto at = place(lives, arena);
  EXPECT_EQ(arena, 500u);
  for (size_t a = 0; a < lives.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      bool together = false;
      for (const auto& x : lives[a].spans) {
        for (const auto& y : lives[b].spans) together |= !intersect(x, y).empty();
      }
      bool apart = at[a] >= at[b] + lives[b].bytes || at[b] >= at[a] + lives[a].bytes;
      EXPECT_TRUE(!together || apart) << a << " " << b;
    }
  }
}

}  // namespace
}  // namespace sf::plan
