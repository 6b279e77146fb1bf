// SPDX-License-Identifier: Apache-2.0
#include "comm/trace.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace sf::comm {
namespace {

Call named(std::string_view tag) {
  return {tag, Deadline::after_ms(20'000)};
}

// A traced group of one whose clock stands still until it is told to go on.
struct Fixture {
  double time = 100;
  std::unique_ptr<Group> group = traced(make_single(), [this] { return time; });
  Trace& trace = *trace_of(*group);
  std::vector<std::string> seen;  // "kind name begin-end"
  size_t dropped = 0;

  Fixture() {
    trace.wanted = [](int64_t step) { return step == 2; };
    trace.sink = [this](int64_t step, const std::vector<Span>& spans, size_t dropped_spans) {
      dropped = dropped_spans;
      for (const Span& span : spans)
        seen.push_back(fmt::format("{}: {} {}{}{}-{}", step, name_of(span.kind), span.name,
                                   span.name.empty() ? "" : " ", span.begin, span.end));
    };
  }
  void step(int64_t number) {
    trace.begin_step(number);
    trace.phase(Span::Kind::kData);
    time += 1;
    std::vector<int64_t> sums{1};
    group->all_reduce_sum(sums, named("window counts"));
    trace.phase(Span::Kind::kCompute);
    time += 5;
    float value = 1, sum = 0;
    std::vector<size_t> offsets{0, 1};
    group->reduce_fold({&value, 1}, true, offsets, {&sum, 1}, named("fold layers.3"));
    time += 2;
    trace.phase(Span::Kind::kOptimizer);
    time += 3;
    trace.end_step();
  }
};

TEST(Trace, SpansOfAWantedStepCoverItWithoutAGap) {
  Fixture f;
  f.step(2);
  EXPECT_EQ(f.seen, (std::vector<std::string>{"2: data 100-101", "2: reduce window counts 101-101",
                                              "2: compute 101-106", "2: reduce fold layers.3 106-106",
                                              "2: compute 106-108", "2: optimizer 108-111"}));
}

TEST(Trace, StepsThatNobodyWantsLeaveNothing) {
  Fixture f;
  f.step(1);
  f.step(3);
  EXPECT_TRUE(f.seen.empty());
}

TEST(Trace, CallsOfAPartAreNotedInTheWhole) {
  Fixture f;
  std::unique_ptr<Group> part = f.group->split(0, named("mesh"));
  f.trace.begin_step(2);
  part->barrier(named("in the part"));
  f.trace.end_step();
  EXPECT_EQ(f.seen, (std::vector<std::string>{"2: exchange in the part 100-100"}));
}

TEST(Trace, AStepOfEndlessCallsIsCutAndCounted) {
  Fixture f;
  f.trace.begin_step(2);
  for (size_t i = 0; i < Trace::kMostSpans + 7; ++i) f.group->barrier(named("again"));
  f.trace.end_step();
  EXPECT_EQ(f.seen.size(), Trace::kMostSpans);
  EXPECT_EQ(f.dropped, 7u);
}

TEST(Trace, TimeSpentWaitingAndBytesSentAreThoseOfTheGroup) {
  std::vector<std::unique_ptr<Group>> groups = make_threads(2);
  std::vector<Span> spans;
  Traffic sent;
  auto rank = [&](std::unique_ptr<Group> plain) {
    std::unique_ptr<Group> group = traced(std::move(plain));
    Trace& trace = *trace_of(*group);
    trace.wanted = [](int64_t) { return true; };
    trace.sink = [&](int64_t, const std::vector<Span>& all, size_t) {
      if (group->rank() == 0) spans = all;
    };
    trace.begin_step(1);
    std::vector<std::byte> mine(1000), all(2000);
    std::vector<size_t> sizes{1000, 1000};
    group->all_gather(std::span<const std::byte>(mine), sizes, all, named("gather x"));
    if (group->rank() == 0) sent = group->traffic();
    trace.end_step();
  };
  {
    std::jthread other(rank, std::move(groups[1]));
    rank(std::move(groups[0]));
  }
  auto gather = std::find_if(spans.begin(), spans.end(), [](const Span& span) { return span.name == "gather x"; });
  ASSERT_NE(gather, spans.end());
  EXPECT_EQ(gather->kind, Span::Kind::kGather);
  EXPECT_EQ(gather->bytes, sent.bytes_sent);
  EXPECT_GE(gather->bytes, 1000u);
  EXPECT_EQ(gather->waited, sent.seconds_waiting);
  EXPECT_LE(gather->waited, gather->end - gather->begin);
}

}  // namespace
}  // namespace sf::comm
